// WriteBudget: how many bytes may go to the SSD, a second and a day.
//
// A write may begin while both accounts allow it; it may overdraw them, and the next one waits. So
// in any 24 hours at most bytes_per_day and one batch more are written, and in any span at most
// bytes_per_second times its length and one batch more. Counted since the start of the process.
// No clock of its own; one thread at a time (the loop).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>

namespace kv {

class WriteBudget {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// 0: no limit.
  WriteBudget(uint64_t bytes_per_second, uint64_t bytes_per_day)
      : per_second_(bytes_per_second), per_day_(bytes_per_day) {}

  bool limited() const { return per_second_ > 0 || per_day_ > 0; }
  /// When the next write may begin; not after `now`: at once.
  Time next(Time now) const;
  void spent(uint64_t bytes, Time now);
  /// Of the last 24 hours and the begun one before them.
  uint64_t spent_in_day(Time now) const;

 private:
  static constexpr int64_t kHours = 25;  ///< the begun one counts whole

  const uint64_t per_second_, per_day_;
  Time ready_{};  ///< of the second's account
  struct Hour {
    int64_t number = INT64_MIN;
    uint64_t bytes = 0;
  };
  std::array<Hour, kHours> hours_{};  ///< number % kHours is its place
};

}  // namespace kv
