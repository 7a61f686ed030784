// WriteBudget: a pause after each write, and the sums of the last hours.
#include "cachesvc/core/write_budget.h"

#include <algorithm>

namespace kv {

using std::chrono::hours;

namespace {

constexpr std::chrono::minutes kMaxDrift{30};  // a larger one means that the clock was set

}  // namespace

int64_t WriteBudget::hour_of(Wall wall) {
  return std::chrono::floor<hours>(wall.time_since_epoch()).count();
}

int64_t WriteBudget::hour_at(Time at) const {
  return std::chrono::floor<hours>(at.time_since_epoch() + offset_).count();
}

WriteBudget::Time WriteBudget::next(Time now) const {
  Time at = per_second_ > 0 ? std::max(ready_, now) : now;
  if (per_day_ == 0) return at;
  // The first hour at which the sum of the hours before it is below the limit.
  for (int64_t hour = hour_at(at);; ++hour) {
    Time begins{hours(hour) - offset_};
    if (spent_in_day(begins) < per_day_) return std::max(at, begins);
  }
}

void WriteBudget::spent(uint64_t bytes, Time now) {
  if (per_second_ > 0) {
    std::chrono::duration<double> pause(static_cast<double>(bytes) /
                                        static_cast<double>(per_second_));
    ready_ = std::max(ready_, now) + std::chrono::ceil<Time::duration>(pause);
  }
  add(hour_at(now), bytes);
}

void WriteBudget::add(int64_t number, uint64_t bytes) {
  Hour& hour = hours_[static_cast<size_t>((number % kHours + kHours) % kHours)];
  if (hour.number != number) hour = {number, 0};
  hour.bytes += bytes;
}

uint64_t WriteBudget::spent_in_day(Time now) const {
  int64_t last = hour_at(now);
  uint64_t sum = 0;
  for (const Hour& hour : hours_) {
    if (hour.number > last - kHours && hour.number <= last) sum += hour.bytes;
  }
  return sum;
}

void WriteBudget::restore(const HourBytes& written, Time now, Wall wall) {
  offset_ = wall.time_since_epoch() - now.time_since_epoch();
  int64_t last = hour_at(now);
  for (const auto& [hour, bytes] : written) {
    if (hour > last - kHours) add(std::min(hour, last), bytes);
  }
}

// Hours get the wall clock's numbers of now: if the clock was set, they differ from those at the
// start. A drift changes none, so that no restart renews any budget.
HourBytes WriteBudget::kept(Time now, Wall wall) const {
  auto set_by = wall.time_since_epoch() - now.time_since_epoch() - offset_;
  bool was_set = std::chrono::abs(set_by) >= kMaxDrift;
  int64_t shift = was_set ? std::chrono::ceil<hours>(set_by).count() : 0, last = hour_at(now);
  HourBytes out;
  for (const Hour& hour : hours_) {
    if (hour.number <= last - kHours || hour.bytes == 0) continue;
    out[hour.number + shift] = std::min(hour.bytes, kMaxHourBytes);
  }
  return out;
}

HourBytes WriteBudget::all_spent(Wall wall) const {
  HourBytes out;
  int64_t last = hour_of(wall);
  for (int64_t hour = last - 24; per_day_ > 0 && hour < last; ++hour) {
    out[hour] = per_day_ / 24 + 1;
  }
  return out;
}

}  // namespace kv
