// Counters and records of requests. See fetch_notes.h.
#include "cachesvc/core/fetch_notes.h"

#include <algorithm>

namespace kv {

void FetchNotes::describe(const RealmState& realm, const Query& query, const Hit& hit,
                          Missing limit, const std::string& reason, RequestRecord& record) const {
  misses_.explain(realm, query, hit, hit.plan.tokens, limit, record);
  if (record.missing != Missing::nothing) record.reason.assign(reason, 0, kMaxReasonBytes);
}

void FetchNotes::note(Clock::time_point began, RequestRecord& record) {
  const auto took = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began);
  record.total_us = std::max(1u, static_cast<uint32_t>(took.count()));
  record.at_ms = env_.wall_ms();
  ring_.add(record);
}

void FetchNotes::served(RunningFetch& f, const FetchReply& reply) {
  const uint64_t n = reply.tokens;
  const uint64_t ram_tokens = n - f.ssd_tokens - f.remote_tokens;
  env_.count.hit_tokens_ssd += f.ssd_tokens;
  env_.count.hit_tokens_remote += f.remote_tokens;
  env_.count.hit_tokens_ram += ram_tokens;
  env_.count.miss_tokens += f.query->tokens.size() - n;
  if (n == 0) ++env_.count.fetch_misses;
  ModelUse& use = env_.measures.models.of(f.realm->realm.ns, f.realm->model->name);
  ++use.fetches;
  use.misses += n == 0;
  use.hit_tokens_ssd += f.ssd_tokens;
  use.hit_tokens_remote += f.remote_tokens;
  use.hit_tokens_ram += ram_tokens;
  use.miss_tokens += f.query->tokens.size() - n;
  use.prefill_ms_saved += f.saved_ms;
  env_.measures.fetch[static_cast<size_t>(reply.tier)].add(
      Measures::microseconds(Clock::now() - f.begun));
  f.record.ssd_tokens = static_cast<uint32_t>(f.ssd_tokens);
  f.record.remote_tokens = static_cast<uint32_t>(f.remote_tokens);
  f.record.ram_tokens = static_cast<uint32_t>(ram_tokens);
  note(f.begun, f.record);
}

}  // namespace kv
