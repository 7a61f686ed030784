// stats: counters and gauges of the core, the SSD tier and the loop.
#include <algorithm>

#include "cachesvc/core/impl.h"
#include "cachesvc/loop/loop_watch.h"

namespace kv {
namespace {

constexpr size_t kMaxReportedParts = 1024;  // of all models in one reply

uint64_t microseconds(Clock::duration time) {
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(time).count());
}

}  // namespace

StatsReply CacheCore::Impl::stats_now(const SsdStats& ssd) const {
  StatsReply out;
  auto add = [&out](const char* name, uint64_t value) { out.values.emplace_back(name, value); };
#define KV_COUNTER(name) add(#name, count_.name);
  KV_CACHE_COUNTERS(KV_COUNTER)
#undef KV_COUNTER
  add("ram_budget_bytes", pool_->budget_bytes());
  add("ram_used_bytes", pool_->used_bytes());
  add("ram_peak_bytes", pool_->peak_bytes());
  for (size_t i = 0; i < kChargeKinds; ++i) {
    auto kind = static_cast<ChargeKind>(i);
    out.values.emplace_back(std::string("ram_") + to_string(kind) + "_bytes",
                            pool_->used_bytes(kind));
  }
  add("ram_recycled_bytes", pool_->recycled_bytes());
  auto& index = const_cast<ObjectIndex&>(index_);
  add("ram_objects", index.ram().size());
  add("ssd_objects", index.ssd().size());
  add("ssd_limit_bytes", ssd.limit_bytes);
  add("ssd_used_bytes", ssd.used_bytes);
  add("ssd_quarantine_bytes", ssd.quarantine_bytes);
  add("ssd_other_key_files", ssd.other_key_files);
  add("ssd_other_key_bytes", ssd.other_key_bytes);
  add("ssd_other_key_dropped", ssd.other_key_dropped);
  add("spill_queue_bytes", records_.queue_bytes());
  add("spill_queue_limit_bytes", options_.spill_queue_bytes);
  add("ssd_written_bytes", ssd.device_bytes_written);
  add("ssd_catalog_written_bytes", ssd.catalog_bytes_written);
  add("ssd_written_day_bytes", budget_.spent_in_day(Clock::now()));
  // Physical bytes over those of the objects as they lie in RAM.
  const uint64_t raw = count_.spill_raw_bytes;  // 0: nothing was spilled yet
  add("ssd_write_percent", raw == 0 ? 0 : 100 * ssd.device_bytes_written / raw);
  add("ssd_hangs", reads_hang() || writes_hang());
  add("reservations", reservations_.size());
  add("sessions", sessions_.size());
  add("models", models_.size());
  add("waiting_calls", calls_.size());
  add("pins", index_.pins());
  LoopWatch& watch = LoopWatch::of(loop_);
  LoopWatch::Took longest = watch.longest(Clock::now());
  add("loop_longest_us", microseconds(longest.wall));
  add("loop_longest_cpu_us", microseconds(longest.cpu));
  add("loop_handlers", watch.handlers());
  add("loop_over_1ms", watch.over_1ms());
  add("loop_over_1ms_cpu", watch.over_1ms_cpu());
  add("recovered_objects", recovered_objects_);
  add("recovered_skipped", recovered_skipped_);
  add("recovery_adopted", recovery_.adopted);
  add("recovery_adopted_bytes", recovery_.adopted_bytes);
  add("recovery_rows_dropped", recovery_.rows_dropped);
  add("recovery_quarantined", recovery_.quarantined);
  add("recovery_unreadable", recovery_.unreadable);
  add("recovery_unread", recovery_.unread);
  add("recovery_ms", recovery_.milliseconds);
  add("recovery_ephemeral_dropped", recovery_.ephemeral_dropped);
  size_t parts = 0;  // of models with thousands the others' would be of no use to anybody
  for (const auto& [key, model] : models_) {
    if (!model->coded || parts + model->coded->reports.size() > kMaxReportedParts) continue;
    parts += model->coded->reports.size();
    out.models.emplace_back(model->spec->name, model->coded->reports);
  }
  return out;
}

void CacheCore::Impl::stats(uint64_t session, Deadline deadline, Done<Result<StatsReply>> done) {
  auto call = begin<Result<StatsReply>>(session, deadline, std::move(done));
  if (call->finished()) return;
  if (!ssd_) {
    StatsReply reply = stats_now({});
    return call->finish(std::move(reply));
  }
  on_worker([ssd = ssd_] { return ssd->stats(); },
            [this, call](SsdStats ssd) {
              if (!call->finished()) call->finish(stats_now(ssd));
            });
}

}  // namespace kv
