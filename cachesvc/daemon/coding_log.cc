// Lines about models that were opened.
#include "cachesvc/daemon/coding_log.h"

#include <chrono>

#include "cachesvc/daemon/log.h"
#include "codec/preset.h"

namespace kv {

// Logs, once for each model and profile, the layers that are coded and those that can't be.
void CodingLog::opened(const std::string& model, const OpenReply& reply,
                       const CodingSettings& own) {
  if (reported_.size() >= kMaxReported) reported_.clear();
  const Realm& realm = reply.realm;
  std::string what = realm.ns + " " + realm.fingerprint.hex() + " " + realm.profile.hex();
  if (!reported_.insert(what).second) return;
  const Profile& profile = *reply.profile;
  const bool kept =
      profile.requested_k_bits != own.k_bits || profile.requested_v_bits != own.v_bits;
  std::string text = model + " in namespace " + realm.ns + ": " +
                     preset_name(profile.requested_k_bits, profile.requested_v_bits);
  if (kept) {
    text += " (the profile in force, kept until it is replaced; codec.default is " +
            preset_name(own.k_bits, own.v_bits) + ")";
  }
  text += ", blocks of " + std::to_string(profile.block_tokens) + " tokens, profile " +
          realm.profile.hex().substr(0, 12);
  if (!events_.on(kModelOpened, text, 1, std::chrono::steady_clock::now())) return;
  for (const std::string& line : coding_lines(reply.parts)) {
    log_line(spdlog::level::info, {"model_coding", {}}, "model " + model + ": " + line);
  }
}

}  // namespace kv
