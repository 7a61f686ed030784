// WritePace: when the SSD may be written, by the write budget, and what of it is spent, over
// restarts too. Loop thread only.
#pragma once

#include <chrono>

#include "cachesvc/core/ssd_lane.h"
#include "cachesvc/core/write_budget.h"

namespace kv {

class WritePace {
 public:
  WritePace(Env& env, SsdLane& lane);
  WritePace(const WritePace&) = delete;  // its timer points here
  WritePace& operator=(const WritePace&) = delete;

  bool limited() const { return budget_.limited(); }
  /// Something may be written now; if not, progress() follows when it may.
  bool may_write();
  /// A write waits for the budget.
  bool held() const { return timer_.armed(); }
  /// None may begin for longer than `time`.
  bool held_beyond(Milliseconds time) const;
  /// Takes off the budget what the device was given since the last call.
  void charge();
  uint64_t day_bytes() const;  ///< given to the device in 24 hours
  /// A start: what earlier processes wrote.
  void restore(const Recovery& found);

 private:
  std::chrono::system_clock::time_point wall_now() const;

  Env& env_;
  SsdLane& lane_;
  WriteBudget budget_;
  uint64_t charged_ = 0;  // of what the device was given
  Timer timer_;
};

}  // namespace kv
