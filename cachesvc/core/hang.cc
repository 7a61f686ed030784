// A device that hangs: what changes the SSD runs in order, one job at a time, so one that never
// returns holds up all behind it. When none has ended for io_timeout, whoever waits for the SSD is
// answered without it; when one ends, all goes on. Reads have their own time limits (_promote).
#include "cachesvc/core/impl.h"

namespace kv {

void CacheCore::Impl::watch_ssd() {
  if (ssd_watch_ || writes_hang_) return;
  auto timer = std::make_unique<boost::asio::steady_timer>(loop_, options_.io_timeout);
  timer->async_wait(
      [weak = weak_from_this(), ended = ssd_jobs_ended_](boost::system::error_code error) {
        auto self = weak.lock();
        if (error || !self || self->closed_) return;
        self->ssd_watch_.reset();
        if (self->ssd_jobs_ended_ == self->ssd_jobs_) return;  // idle
        if (self->ssd_jobs_ended_ != ended) return self->watch_ssd();
        self->writes_hang_ = true;
        self->event(EventKind::hang, [] { return "a write"; });
        ++self->count_.io_timeouts;
        if (auto open = std::exchange(self->open_anyway_, nullptr)) open();
        self->check_commit_waits();
        self->room_wake_->ask();
      });
  ssd_watch_ = std::move(timer);
}

void CacheCore::Impl::ssd_returned() noexcept {
  ++ssd_jobs_ended_;
  if (!std::exchange(writes_hang_, false)) return;
  event(EventKind::hang_over, [] { return "writes"; });
  if (ssd_jobs_ended_ < ssd_jobs_) (void)if_memory([&] { watch_ssd(); });  // or with the next job
  spill_wake_->ask();
}

void CacheCore::Impl::go_on_spilling() noexcept {
  pump_spill();
  check_commit_waits();
  check_drained();
}

}  // namespace kv
