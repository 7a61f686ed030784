// Lines of a start.
#include "cachesvc/daemon/start_log.h"

#include <spdlog/fmt/fmt.h>
#include <unistd.h>

#include <algorithm>

#include "cachesvc/daemon/log.h"
#include "cachesvc/daemon/version.h"
#include "codec/preset.h"

namespace kv {
namespace {

constexpr size_t kRejectedInLog = 20;

void info(const LogFields& fields, const std::string& message) {
  log_line(spdlog::level::info, fields, message);
}
void warn(const LogFields& fields, const std::string& message) {
  log_line(spdlog::level::warn, fields, message);
}

void log_resp(const RespOptions& resp) {
  if (resp.listen.port == 0) return;
  info({"resp", {{"password", !resp.password.empty()}}},
       fmt::format("resp {} namespace {}, {}", format_address(resp.listen), resp.ns,
                   resp.password.empty() ? "no password: every user of this machine may connect"
                                         : "with a password"));
}

void log_ssd(const CacheOptions& cache) {
  if (cache.ssd_dir.empty()) return info({"ssd", {}}, "ssd off");
  info({"ssd", {{"limit_bytes", cache.ssd_limit_bytes}, {"free_bytes", cache.ssd_min_free_bytes}}},
       fmt::format("ssd {} limit {} bytes, min free {} bytes", cache.ssd_dir, cache.ssd_limit_bytes,
                   cache.ssd_min_free_bytes));
  std::string sealed = "ssd not sealed: prompts are plain at rest";
  if (cache.ssd_key != nullptr) {
    sealed = "ssd sealed, key id " + to_hex(cache.ssd_key->id()) +
             (cache.ssd_key->ephemeral() ? ", in memory only" : "");
  }
  info({"ssd_sealed", {{"sealed", cache.ssd_key != nullptr}}}, sealed);
}

// A store that had nothing needs no catalog.
bool found_anything(const Recovery& r) {
  return r.rows_used + r.rows_dropped + r.adopted + r.quarantined + r.unreadable + r.unknown_files +
             r.other_key_files >
         0;
}

}  // namespace

void log_start(const Config& config, const CacheCore& core) {
  const CacheOptions& cache = core.options();
  info({"start", {{"pid", static_cast<uint64_t>(::getpid())}}},
       fmt::format("cachesvc {} pid {}", kProgramVersion, ::getpid()));
  info({"config", {}}, "config " + (config.file.empty() ? "defaults (no file)" : config.file));
  info({"socket", {{"max_connections", config.server.max_connections}}},
       fmt::format("socket {} (at most {} connections)", config.server.socket,
                   config.server.max_connections));
  log_resp(config.server.resp);
  const RamPool& pool = *core.pool();
  info(
      {"ram", {{"budget_bytes", pool.most_bytes()}, {"staging_bytes", pool.staging_limit_bytes()}}},
      fmt::format("ram budget {} bytes, staging at most {}", pool.most_bytes(),
                  pool.staging_limit_bytes()));
  log_ssd(cache);
  const CodingSettings& coding = cache.coding;
  info({"codec", {{"block_tokens", coding.block_tokens}}},
       fmt::format("codec {} (K {} bits, V {} bits), {} exact tokens, blocks of {} tokens, for "
                   "models without a profile; what is stored keeps the one it has; {} workers",
                   preset_name(coding.k_bits, coding.v_bits), coding.k_bits, coding.v_bits,
                   coding.exact_tokens, coding.block_tokens, cache.workers));
}

void log_recovery(const Recovery& r) {
  info({"ssd_recovered",
        {{"by_catalog", r.rows_used},
         {"adopted", r.adopted},
         {"adopted_bytes", r.adopted_bytes},
         {"rows_dropped", r.rows_dropped},
         {"quarantined", r.quarantined},
         {"unreadable", r.unreadable},
         {"foreign", r.unknown_files},
         {"other_keys", r.other_key_files},
         {"keys_gone", r.ephemeral_dropped},
         {"unread", r.unread},
         {"milliseconds", r.milliseconds}}},
       fmt::format("ssd recovered: {} objects by the catalog, {} adopted ({} bytes), {} rows "
                   "dropped, {} quarantined, {} unreadable, {} foreign, {} of other keys, {} of "
                   "keys that are gone, {} left to the background, {} ms",
                   r.rows_used, r.adopted, r.adopted_bytes, r.rows_dropped, r.quarantined,
                   r.unreadable, r.unknown_files, r.other_key_files, r.ephemeral_dropped, r.unread,
                   r.milliseconds));
  if (r.unread > 0) return;
  if (!r.catalog_rebuilt.empty() && found_anything(r)) {
    warn({"catalog_rebuilt", {}}, r.catalog_rebuilt + ": started anew from the files");
  }
  if (r.other_key_files > 0) {
    warn({"ssd_other_keys", {{"count", r.other_key_files}}},
         fmt::format("ssd: {} files need another key than tier.ssd.key_file names: they serve "
                     "nothing",
                     r.other_key_files));
  }
  size_t named = std::min(r.rejected.size(), kRejectedInLog);
  for (size_t i = 0; i < named; ++i) {
    warn({"ssd_left_out", {{"count", 1}}},
         "left out " + r.rejected[i].file + ": " + r.rejected[i].reason.to_string());
  }
  if (size_t more = r.rejected.size() - named; more > 0) {
    warn({"ssd_left_out", {{"count", more}}}, fmt::format("left out {} more", more));
  }
}

}  // namespace kv
