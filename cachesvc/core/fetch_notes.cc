// Counters and records of requests. See fetch_notes.h.
#include "cachesvc/core/fetch_notes.h"

#include <algorithm>

namespace kv {

void FetchNotes::describe(const RealmState& realm, const Query& query, const Hit& hit,
                          Missing limit, const std::string& reason, RequestRecord& record) const {
  misses_.explain(realm, query, hit, hit.plan.tokens, limit, record);
  if (record.missing != Missing::nothing) record.reason.assign(reason, 0, kMaxReasonBytes);
}

uint64_t FetchNotes::note(Clock::time_point began, RequestRecord& record) {
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  record.total_us = std::max(1u, static_cast<uint32_t>(took.count()));
  record.at_ms = env_.wall_ms();
  return ring_.add(record);
}

void FetchNotes::missed(const std::string& ns, const std::string& model, uint64_t tokens) {
  env_.count.miss_tokens += tokens;
  ++env_.count.fetch_misses;
  ModelUse& use = env_.measures.models.of(ns, model);
  ++use.misses;
  use.miss_tokens += tokens;
}

void FetchNotes::served(RunningFetch& f, const FetchReply& reply) {
  const uint64_t n = reply.tokens;
  const uint64_t ram_tokens = n - f.ssd_tokens - f.remote_tokens;
  env_.count.hit_tokens_ssd += f.ssd_tokens;
  env_.count.hit_tokens_remote += f.remote_tokens;
  env_.count.hit_tokens_ram += ram_tokens;
  const Realm& realm = f.realm->realm;
  ModelUse& use = env_.measures.models.of(realm.ns, f.realm->model->name);
  ++use.fetches;
  if (n == 0 && !f.miss_counted) {
    missed(realm.ns, f.realm->model->name, f.query->tokens.size());
  } else if (n > 0) {
    env_.count.miss_tokens += f.query->tokens.size() - n;
    use.miss_tokens += f.query->tokens.size() - n;
  }
  use.hit_tokens_ssd += f.ssd_tokens;
  use.hit_tokens_remote += f.remote_tokens;
  use.hit_tokens_ram += ram_tokens;
  use.prefill_ms_saved += f.saved_ms;
  env_.measures.fetch[static_cast<size_t>(reply.tier)].add(
      Measures::microseconds(Clock::now() - f.begun));
  f.record.ssd_tokens = static_cast<uint32_t>(f.ssd_tokens);
  f.record.remote_tokens = static_cast<uint32_t>(f.remote_tokens);
  f.record.ram_tokens = static_cast<uint32_t>(ram_tokens);
  note(f.begun, f.record);
}

}  // namespace kv
