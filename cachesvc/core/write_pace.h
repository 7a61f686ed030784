// WritePace: applies the write budget: when the SSD may be written, and what was spent, over
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
  /// Limits from now on, 0: none; a write that waits asks anew.
  void limit(uint64_t bytes_per_second, uint64_t bytes_per_day);
  /// True if a write may begin now; if not, progress() follows when it may.
  bool may_write();
  /// True while a write waits for the budget.
  bool held() const { return timer_.armed(); }
  /// True if no write may begin within `time`.
  bool held_beyond(Milliseconds time) const;
  /// Charges the budget with the bytes that the device was given since the last call.
  void charge();
  uint64_t day_bytes() const;  ///< given to the device in 24 hours
  /// Charges what earlier processes wrote; for a start.
  void restore(const Recovery& found);
  /// Ends the process if a write waits that need not.
  void check_invariants() const { KV_CHECK(!held() || limited()); }

 private:
  Env& env_;
  SsdLane& lane_;
  WriteBudget budget_;
  uint64_t charged_ = 0;  // bytes charged of those that the device was given
  Timer timer_;
};

}  // namespace kv
