// drain: the orderly end. All that waits for the SSD is written, then told as durable.
#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {

// Stops accepting, writes what waits, then one sync and one checkpoint.
void CacheCore::Impl::drain(Deadline deadline, Done<Status> done) {
  auto call = begin<Status>(0, deadline, std::move(done));
  draining_ = true;
  if (call->finished()) return;
  if (!ssd_) return call->finish(Status());
  drain_now(call);
}

void CacheCore::Impl::drain_now(std::shared_ptr<Call<Status>> call) {
  if (call->finished()) return;
  if (!erases_.empty()) {  // commits wait for them: those come first
    return after_erase_.push_back([this, call] { drain_now(call); });
  }
  for (const auto& [key, model] : models_) {
    bool retry = model->realm && !model->records_durable && !model->records_writing;
    if (retry) write_records(*model);
  }
  retry_spills(SIZE_MAX);
  // Whatever waits for eviction, is leased, or found the queue full when it was committed.
  queue_dirty();
  tell_last_uses();
  drain_checks_.push_back([this, call] { end_drain(call, false); });
  pump_spill();
  check_drained();
}

// What found no memory is tried once more; then it is said.
void CacheCore::Impl::end_drain(std::shared_ptr<Call<Status>> call, bool again) {
  const bool lacked_memory = std::exchange(spills_lacked_memory_, false) || some_unqueued_;
  if (lacked_memory && !again) {
    retry_spills(SIZE_MAX);
    queue_dirty();
    drain_checks_.push_back([this, call] { end_drain(call, true); });
    pump_spill();
    return check_drained();
  }
  charge_writes();
  Status unwritten;
  if (lacked_memory) {
    unwritten = {StatusCode::busy, "out of memory: some objects are not on the SSD"};
  } else if (uint64_t bytes = records_.queue_bytes(); bytes > 0 && budget_.limited()) {
    unwritten = {StatusCode::resource_exhausted,
                 "the write budget leaves " + std::to_string(bytes) + " bytes unwritten"};
  }
  on_ssd_last(
      [ssd = ssd_]() -> Status {
        KV_RETURN_IF_ERROR(ssd->sync());
        return ssd->checkpoint();
      },
      [call, unwritten](Status status) { call->finish(status.ok() ? unwritten : status); });
}

void CacheCore::Impl::check_drained() noexcept {
  if (drain_checks_.empty() || packing_ || writing_) return;
  pump_spill();
  bool queued = records_.first(Disk::queued) != nullptr;
  if (packing_ || (budget_timer_ ? !held_up() : queued && !writes_hang())) return;
  auto checks = std::exchange(drain_checks_, {});
  for (auto& check : checks) (void)if_memory(check);  // its call answers when it is dropped
}

}  // namespace kv
