// WriteBudget: limits the bytes written to the SSD per second and per day.
//
// A write may begin while both accounts allow it; it may overdraw them, and the next one waits.
// Thus in any 24 hours at most bytes_per_day and one batch more are written, and in any span at
// most bytes_per_second times its length and one batch more. The day's account is kept over
// restarts: kept() before, restore() after. Within a process time is the monotonic clock, so the
// wall clock counts only between the two: one that was set back makes hours that seem to come count
// as the one at hand, so nothing is forgotten and nothing stays longer than a day; one that was set
// forward by a day forgets at most a day. No clock of its own; one thread at a time (the loop).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

#include "storage/kept_state.h"

namespace kv {

class WriteBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Wall = std::chrono::system_clock::time_point;
  /// 0: no limit.
  WriteBudget(uint64_t bytes_per_second, uint64_t bytes_per_day)
      : per_second_(bytes_per_second), per_day_(bytes_per_day) {}

  /// Limits from now on; what was spent counts.
  void limit(uint64_t bytes_per_second, uint64_t bytes_per_day) {
    per_second_ = bytes_per_second;
    per_day_ = bytes_per_day;
    ready_ = {};
  }
  bool limited() const { return per_second_ > 0 || per_day_ > 0; }
  /// Time when the next write may begin; not after `now`: at once.
  Time next(Time now) const;
  void spent(uint64_t bytes, Time now);
  /// Bytes of the last 24 hours and the begun one before them.
  uint64_t spent_in_day(Time now) const;

  /// Restores what kept() gave an earlier process. Call it before the first spent(); `now` and
  /// `wall` are the same moment.
  void restore(const HourBytes& written, Time now, Wall wall);
  HourBytes kept(Time now, Wall wall) const;
  /// The day's limit in equal parts over the 24 hours before the one at hand: a budget that is
  /// spent, and comes back hour by hour. For a store whose past is unknown.
  HourBytes all_spent(Wall wall) const;

  static int64_t hour_of(Wall wall);

 private:
  static constexpr int64_t kHours = kKeptHours;  ///< a begun hour counts whole
  int64_t hour_at(Time at) const;
  void add(int64_t number, uint64_t bytes);

  uint64_t per_second_, per_day_;
  Time ready_{};                        ///< time at which the per-second account allows a write
  std::chrono::nanoseconds offset_{0};  ///< wall clock less monotonic clock, as of restore()
  struct Hour {
    int64_t number = INT64_MIN;
    uint64_t bytes = 0;
  };
  std::array<Hour, kHours> hours_{};  ///< place: number modulo kHours
};

}  // namespace kv
