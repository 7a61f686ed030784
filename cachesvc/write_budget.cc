// WriteBudget: a pause after each write, and the sums of the last hours.
#include "cachesvc/write_budget.h"

#include <algorithm>

namespace kv {
namespace {

int64_t hour_of(WriteBudget::Time at) {
  return std::chrono::floor<std::chrono::hours>(at.time_since_epoch()).count();
}

}  // namespace

WriteBudget::Time WriteBudget::next(Time now) const {
  Time at = per_second_ > 0 ? std::max(ready_, now) : now;
  if (per_day_ == 0) return at;
  // The first hour from which on what the hours before it hold is below the limit.
  for (int64_t hour = hour_of(at);; ++hour) {
    Time begins{std::chrono::hours(hour)};
    if (spent_in_day(begins) < per_day_) return std::max(at, begins);
  }
}

void WriteBudget::spent(uint64_t bytes, Time now) {
  if (per_second_ > 0) {
    std::chrono::duration<double> pause(static_cast<double>(bytes) /
                                        static_cast<double>(per_second_));
    ready_ = std::max(ready_, now) + std::chrono::ceil<Time::duration>(pause);
  }
  int64_t number = hour_of(now);
  Hour& hour = hours_[static_cast<size_t>(number % kHours)];
  if (hour.number != number) hour = {number, 0};
  hour.bytes += bytes;
}

uint64_t WriteBudget::spent_in_day(Time now) const {
  int64_t last = hour_of(now);
  uint64_t sum = 0;
  for (const Hour& hour : hours_) {
    if (hour.number > last - kHours && hour.number <= last) sum += hour.bytes;
  }
  return sum;
}

}  // namespace kv
