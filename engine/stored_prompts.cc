// open, fetch and store. See stored_prompts.h.
#include "engine/stored_prompts.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "codec/plan.h"
#include "codec/profile_file.h"
#include "engine/calibration.h"

namespace kv {
namespace {

constexpr std::chrono::minutes kLongestOpen{1};
constexpr int kMostOpens = 3;  // of one fetch, while others replace the profile

Deadline open_deadline(Deadline given) { return std::min(given, deadline_in(kLongestOpen)); }

CodingSettings settings_of(const CodingOptions& coding) {
  CodingSettings settings;
  settings.k_bits = coding.exact ? 0 : coding.k_bits;
  settings.v_bits = coding.exact ? 0 : coding.v_bits;
  settings.raw_dtype = coding.exact ? DType::f32 : DType::f16;
  settings.block_tokens = coding.block_tokens;
  settings.prefill = coding.prefill;
  return settings;
}

const char* to_text(PrefillMode mode) { return mode == PrefillMode::exact ? "exact" : "coded"; }

OpenRequest request_of(const Network& network, const CodingOptions& coding, Profile profile) {
  OpenRequest request;
  request.model = network.spec();
  request.profile = std::make_shared<const Profile>(std::move(profile));
  request.replace = coding.replace;
  request.prefill = coding.prefill;
  return request;
}

// Opens the model if a profile is in force that the engine may use, so that none need be
// calibrated. The profile that it brings can't be put in force, since its mode is not the
// request's: a model that is new stays so.
Result<OpenReply> open_known(const Network& network, Client& client, const CodingOptions& coding,
                             Profile profile, Deadline deadline) {
  bool exact = coding.prefill == PrefillMode::exact;
  profile.prefill = exact ? PrefillMode::coded : PrefillMode::exact;
  return client.open(request_of(network, coding, std::move(profile)), deadline);
}

}  // namespace

Result<StoredPrompts> StoredPrompts::open(Network& network, Client& client,
                                          const CodingOptions& coding, Deadline deadline) {
  const ModelSpec& spec = network.spec();
  KV_ASSIGN_OR_RETURN(Profile profile, plain_profile(spec, settings_of(coding)));
  const bool from_file = !coding.profile_file.empty() && !coding.exact;
  if (from_file) {
    KV_ASSIGN_OR_RETURN(profile, read_profile_file(coding.profile_file, spec, nullptr));
    profile.block_tokens = coding.block_tokens;
    profile.prefill = coding.prefill;
  }
  StoredPrompts out(client);
  bool calibrated = coding.calibrate && !from_file && profile.requested_k_bits != 0;
  Result<OpenReply> known = Status(StatusCode::not_found, "not asked");
  if (calibrated && !coding.replace) {
    known = open_known(network, client, coding, profile, open_deadline(deadline));
  }
  if (calibrated && !known.ok()) {
    auto made = coding.calibration_file.empty()
                    ? calibrate(network, profile, deadline)
                    : calibrate_with_file(network, profile, coding.calibration_file, deadline);
    KV_ASSIGN_OR_RETURN(profile, std::move(made));
  }
  if (!known.ok()) {
    known = client.open(request_of(network, coding, std::move(profile)), open_deadline(deadline));
  }
  KV_ASSIGN_OR_RETURN(OpenReply reply, std::move(known));
  KV_RETURN_IF_ERROR(out.take(std::move(reply), spec, coding.prefill));
  return out;
}

// What an open answered is what new sequences are coded by, if the engine can run it.
Status StoredPrompts::take(OpenReply opened, const ModelSpec& spec, PrefillMode prefill) {
  if (!opened.profile) return {StatusCode::internal, "open: no profile in the reply"};
  if (PrefillMode in_force = opened.profile->prefill; in_force != prefill) {
    return unsupported(std::string("the profile in force has prefill = ") + to_text(in_force) +
                       ", the engine is set to " + to_text(prefill) + "; use another namespace");
  }
  KV_ASSIGN_OR_RETURN(codec_, Codec::create(spec, opened.profile));
  opened_ = std::move(opened);
  stale_ = false;
  return {};
}

// The request brings the profile so far, which counts only where the service knows none any more.
Status StoredPrompts::open_again(Deadline deadline) {
  const ModelSpec spec = codec_->model();
  OpenRequest request{spec, opened_.profile, false, opened_.profile->prefill};
  KV_ASSIGN_OR_RETURN(OpenReply reply, client_->open(request, open_deadline(deadline)));
  return take(std::move(reply), spec, request.prefill);
}

Status StoredPrompts::refresh(Deadline deadline) {
  return stale_ ? open_again(deadline) : Status();
}

KvCache StoredPrompts::new_cache(uint32_t checkpoint_interval) const {
  uint32_t block = codec_->profile().block_tokens;
  if (coded_prefill() && checkpoint_interval != kCheckpointsByPrice) {
    checkpoint_interval = (checkpoint_interval + block - 1) / block * block;
  }
  return KvCache(codec_, opened_.realm, checkpoint_interval);
}

uint32_t StoredPrompts::storable(const KvCache& cache, uint32_t tokens) const {
  return coded_prefill() ? tokens - tokens % cache.block_tokens() : tokens;
}

Result<StoredPrompts::Hit> StoredPrompts::fetch(std::span<const Token> tokens,
                                                const Network& network, uint32_t at_least,
                                                KvCache& cache, Deadline deadline) {
  for (int opens = 0;; ++opens) {
    auto hit = fetch_once(tokens, network, at_least, cache, deadline);
    if (hit.status().code() != StatusCode::profile_changed || opens == kMostOpens) return hit;
    KV_RETURN_IF_ERROR(open_again(deadline));
    if (cache.tokens() == 0) cache = new_cache(cache.checkpoint_interval());
  }
}

Result<StoredPrompts::Hit> StoredPrompts::fetch_once(std::span<const Token> tokens,
                                                     const Network& network, uint32_t at_least,
                                                     KvCache& cache, Deadline deadline) const {
  FetchRequest request;
  request.model = opened_.model;
  request.profile = opened_.realm.profile;
  request.query.tokens.assign(tokens.begin(), tokens.end());
  request.round_to_block = coded_prefill();
  KV_ASSIGN_OR_RETURN(FetchReply reply, client_->fetch(request, deadline));
  uint32_t branch = std::min<size_t>(reply.common, tokens.size() - 1) / cache.block_tokens() *
                    cache.block_tokens();
  if (reply.tokens == 0 || reply.tokens < at_least) {
    if (branch > cache.tokens()) cache.keep_end(branch);
    return Hit{.reason = std::move(reply.reason)};
  }
  KvCache taken = new_cache(cache.checkpoint_interval());
  KV_RETURN_IF_ERROR(
      taken.restore(std::move(reply.lease), tokens,
                    [&](uint32_t count, const auto& task) { network.each(count, task); }));
  if (reply.tokens >= tokens.size() || storable(taken, reply.tokens) != reply.tokens) {
    return Status(StatusCode::internal, "fetch: more than was asked for");
  }
  KV_RETURN_IF_ERROR(network.check(taken));
  if (taken.tokens() != reply.tokens) return corruption("fetch: another length than it says");
  cache = std::move(taken);
  if (branch > cache.tokens()) cache.keep_end(branch);
  return Hit{reply.tokens, reply.tier, reply.form, std::move(reply.reason)};
}

// The window and chunk rows that a cache of `tokens` needs, of the blocks that it did not take over
// whole.
std::vector<Need> StoredPrompts::own_rows(const KvCache& cache, uint32_t tokens) const {
  std::vector<Need> out;
  const uint32_t block = cache.block_tokens(), restored = cache.restored_tokens() / block * block;
  auto groups = part_groups(codec_->model());
  for (uint16_t g = 0; g < groups.size(); ++g) {
    const PartSpec& spec = groups[g].spec;
    if (!spec.has_rows() || spec.rows_in_block()) continue;
    for (const RowRange& rows : demanded_rows(spec, tokens)) {
      for (uint32_t at = std::max(rows.first, restored); at < rows.end;) {
        uint32_t end = std::min(rows.end, (at / block + 1) * block);
        out.push_back({ObjectKind::supplement, at / block, g, at, end, false});
        at = end;
      }
    }
  }
  return out;
}

// What to put for these needs. Rows that other entries hold are not asked for, and would be copied
// from there: so what stands for them is given too, and a repeat attends to this run's own.
std::vector<Need> StoredPrompts::puts_for(const KvCache& cache, uint32_t tokens,
                                          std::span<const Need> needs) const {
  std::vector<Need> own, out;
  if (!needs.empty()) own = own_rows(cache, tokens);
  auto within = [](const Need& a, const Need& b) {
    return a.group == b.group && a.block_index == b.block_index && a.first_row >= b.first_row &&
           a.end_row <= b.end_row;
  };
  for (const Need& need : needs) {
    bool rows = need.kind == ObjectKind::supplement && need.first_row < need.end_row;
    auto wider = std::find_if(own.begin(), own.end(),
                              [&](const Need& o) { return rows && within(need, o); });
    if (wider != own.end()) {
      wider->required |= need.required;
      continue;
    }
    if (rows) std::erase_if(own, [&](const Need& o) { return within(o, need); });
    out.push_back(need);
  }
  out.insert(out.end(), own.begin(), own.end());
  return out;
}

// Puts every object that the reservation lacks, and the checkpoints on the way.
Status StoredPrompts::put_all(const KvCache& cache, uint32_t tokens, const ReserveReply& reserved,
                              Deadline deadline) const {
  std::set<uint32_t> given;
  for (const Need& need : puts_for(cache, tokens, reserved.needs)) {
    if (need.kind == ObjectKind::snapshot) given.insert(need.end_row);
    KV_ASSIGN_OR_RETURN(ObjectPtr object, cache.object(need, tokens));
    if (object) {
      KV_RETURN_IF_ERROR(client_->put({reserved.reservation, *object, {}}, deadline));
    } else if (need.required) {
      return {StatusCode::internal,
              std::string("reserve: asks for a ") + to_string(need.kind) + " that the entry lacks"};
    }
  }
  for (uint32_t at : cache.checkpoints()) {
    if (at <= cache.restored_tokens() || at >= tokens || given.count(at) > 0) continue;
    KV_ASSIGN_OR_RETURN(ObjectPtr object,
                        cache.object({ObjectKind::snapshot, 0, 0, at, at, false}, tokens));
    if (!object) continue;
    KV_RETURN_IF_ERROR(client_->put({reserved.reservation, *object, {}}, deadline));
  }
  if (cache.valid()) return {};
  return {StatusCode::unavailable, "store: the memory that was fetched was taken back"};
}

Result<CommitReply> StoredPrompts::store(const KvCache& cache, uint32_t tokens,
                                         const Terms& terms) {
  KV_CHECK(tokens > 0 && tokens == storable(cache, tokens));
  ReserveRequest request;
  request.model = opened_.model;
  request.profile = cache.realm().profile;
  request.query.tokens.assign(cache.sequence().begin(), cache.sequence().begin() + tokens);
  request.ends.assign(terms.ends.begin(),
                      std::upper_bound(terms.ends.begin(), terms.ends.end(), tokens));
  request.words.prefill_ms = static_cast<uint32_t>(std::min(std::ceil(terms.prefill_ms), 4e9));
  auto answer = client_->reserve(request, terms.calls);
  bool changed = answer.status().code() == StatusCode::profile_changed;
  stale_ = stale_ || (changed && cache.realm() == opened_.realm);
  KV_ASSIGN_OR_RETURN(ReserveReply reserved, std::move(answer));
  if (Status s = put_all(cache, tokens, reserved, terms.calls); !s.ok()) {
    (void)client_->abort(reserved.reservation, terms.calls);
    return s;
  }
  bool waits = terms.wait_for > Durability::accepted;
  auto commit =
      client_->commit(reserved.reservation, terms.wait_for, waits ? terms.level : terms.calls);
  if (!commit.ok()) (void)client_->abort(reserved.reservation, terms.calls);
  return commit;
}

}  // namespace kv
