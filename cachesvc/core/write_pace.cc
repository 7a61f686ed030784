// The write budget's clock and its saved state.
#include "cachesvc/core/write_pace.h"

#include <algorithm>

namespace kv {

WritePace::WritePace(Env& env, SsdLane& lane)
    : env_(env),
      lane_(lane),
      budget_(env.options.write_bytes_per_second, env.options.write_bytes_per_day),
      timer_(env.loop, env.handler([this] { env_.progress(); })) {}

void WritePace::limit(uint64_t bytes_per_second, uint64_t bytes_per_day) {
  budget_.limit(bytes_per_second, bytes_per_day);
  timer_.cancel();
  env_.progress();
}

bool WritePace::may_write() {
  auto now = Clock::now(), at = budget_.next(now);
  if (at <= now) return true;
  if (timer_.armed()) return false;
  timer_.arm_at(at);
  ++env_.count.spills_held;
  env_.progress();
  return false;
}

bool WritePace::held_beyond(Milliseconds time) const {
  auto now = Clock::now();
  return budget_.limited() && budget_.next(now) > now + time;
}

void WritePace::charge() {
  uint64_t written = lane_.ssd()->stats().device_bytes_written;
  budget_.spent(written - std::min(written, charged_), Clock::now());
  charged_ = written;
  lane_.keep_hours(budget_.kept(Clock::now(), env_.wall_now()));
}

uint64_t WritePace::day_bytes() const { return budget_.spent_in_day(Clock::now()); }

// The budget of a store that has files but no state (its catalog was lost) begins as spent. A
// process that was killed wrote more than it kept: at least what lies in the files of each hour.
void WritePace::restore(const Recovery& found) {
  auto wall = env_.wall_now();
  HourBytes written = found.written;
  bool files = found.rows_used + found.adopted + found.unread + found.other_key_files > 0;
  HourBytes more;
  if (found.state)
    more = found.state->written;
  else if (files)
    more = budget_.all_spent(wall);
  for (const auto& [hour, bytes] : more) written[hour] = std::max(written[hour], bytes);
  budget_.restore(written, Clock::now(), wall);
  lane_.keep_hours(budget_.kept(Clock::now(), wall));
  bool known = found.state && (more.empty() || more.rbegin()->first <= WriteBudget::hour_of(wall));
  if (!known) (void)lane_.ssd()->checkpoint();  // makes it known from now on
}

}  // namespace kv
