// Counters of the core. Internal to cachesvc/core.
#pragma once

#include <cstdint>

namespace kv {

/// Counters of stats, by the names in cache_core.h.
// clang-format off
#define KV_CACHE_COUNTERS(X) \
  X(lookups) X(fetches) X(stores) X(commits) X(aborts) X(reservations_expired) X(hit_tokens_ram) \
  X(hit_tokens_ssd) X(hit_tokens_remote) X(miss_tokens) X(fetch_misses) X(puts_duplicate) \
  X(copies) X(objects_committed) X(objects_lost) X(commits_foreign) X(ends_kept) X(ends_missed) \
  X(prefill_ms_told) X(prefill_ms_saved) X(encoded_planes) X(encode_raw_fallbacks) \
  X(nonfinite_planes) X(spills_queued) X(spills_deferred) X(spills_held) X(spills_written) \
  X(spills_failed) X(spills_dropped) X(spill_raw_bytes) X(spill_packed_bytes) X(promotions) \
  X(promotion_joins) X(promotion_failures) X(ram_evicted_clean) X(ram_evicted_dirty) \
  X(ssd_evicted) X(index_evicted) X(erased_objects) X(expired_objects) X(superseded_tails) \
  X(copied_supplements) X(demoted_objects) X(warm_objects) X(ram_moved) X(ram_verified) \
  X(ram_damaged) X(scrubbed_files) X(scrubbed_bytes) X(scrub_passes) X(scrub_damaged) \
  X(quarantined) X(read_io_errors) X(io_timeouts) X(busy) X(denied) X(over_quota)
// clang-format on
struct Counters {
#define KV_COUNTER(name) uint64_t name = 0;
  KV_CACHE_COUNTERS(KV_COUNTER)
#undef KV_COUNTER
};

}  // namespace kv
