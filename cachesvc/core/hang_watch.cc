// The watch and what it tells. See hang_watch.h.
#include "cachesvc/core/hang_watch.h"

#include <utility>

namespace kv {

void HangWatch::watch() {
  if (timer_.armed() || hangs_) return;
  ended_before_ = ended_;
  timer_.arm_in(env_.options.io_timeout);
}

void HangWatch::look() {
  if (ended_ == jobs_) return;  // idle
  if (ended_ != ended_before_) return watch();
  hangs_ = true;
  env_.event(EventKind::hang, [] { return "a write"; });
  ++env_.count.io_timeouts;
  env_.progress();
  env_.room_freed();
}

void HangWatch::ended() {
  ++ended_;
  if (!std::exchange(hangs_, false)) return;
  env_.event(EventKind::hang_over, [] { return "writes"; });
  if (ended_ < jobs_) watch();
  env_.progress();
}

}  // namespace kv
