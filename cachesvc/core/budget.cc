// The write budget: spills wait for it, and while they do, what was reused goes first. And what is
// kept over a restart of it and of the scrubber's place: written to the catalog with its
// checkpoints and at the end, not with each batch.
#include <algorithm>
#include <new>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

// The scrubber's place: names of files begin with their id. Two bytes of it tell nobody what was
// stored, even after it was erased.
uint16_t place_of(const Id& id) { return static_cast<uint16_t>(id.bytes[0] << 8 | id.bytes[1]); }
std::string first_name_at(uint16_t place) {
  if (place == 0) return {};
  ObjectName name{ObjectKind::block, {}, 0, 0, 0};
  name.id.bytes[0] = static_cast<uint8_t>(place >> 8);
  name.id.bytes[1] = static_cast<uint8_t>(place);
  return file_name(name);
}

}  // namespace

// True if nothing may be written now; whoever asked is called again when something may.
bool CacheCore::Impl::hold_spills() {
  if (!budget_.limited()) return false;
  if (writing_) return true;  // what it writes counts first
  auto now = Clock::now(), at = budget_.next(now);
  if (at <= now) {
    order_by_use();
    return false;
  }
  if (budget_timer_) return true;
  auto timer = std::make_unique<boost::asio::steady_timer>(loop_, at);
  timer->async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (error || !self || self->closed_) return;
    self->budget_timer_.reset();
    self->pump_spill();
    self->check_drained();
  });
  budget_timer_ = std::move(timer);
  ++count_.spills_held;
  spill_wake_->ask();
  return true;
}

// Nothing will be written for as long as anybody may be made to wait for room.
bool CacheCore::Impl::held_up() const {
  auto now = Clock::now();
  return writes_hang() || (budget_.limited() && budget_.next(now) > now + options_.room_wait);
}

// An object counts as much as the most used one that rests on it, so parents stay before children.
void CacheCore::Impl::order_by_use() {
  std::map<const Record*, uint32_t> uses;
  for (const Record& queued : records_.all(Disk::queued)) {
    Record* at = index_.find(queued.name);
    for (; at && at->disk == Disk::queued; at = index_.parent_of(*at)) {
      auto [it, fresh] = uses.try_emplace(at, queued.uses);
      if (!fresh && it->second >= queued.uses) break;
      it->second = queued.uses;
    }
  }
  records_.order_queue([&](const Record& a, const Record& b) { return uses.at(&a) > uses.at(&b); });
}

void CacheCore::Impl::charge_writes() {
  uint64_t written = ssd_->stats().device_bytes_written;
  budget_.spent(written - std::min(written, charged_writes_), Clock::now());
  charged_writes_ = written;
  keep_state();
}

void CacheCore::Impl::keep_state() try {
  uint16_t scrubbed = 0;
  if (auto name = parse_file_name(scrub_after_)) scrubbed = place_of(name->object.id);
  ssd_->keep({budget_.kept(Clock::now(), wall_now()), scrubbed});
} catch (const std::bad_alloc&) {  // what was kept before stays
}

std::chrono::system_clock::time_point CacheCore::Impl::wall_now() const {
  return options_.wall_clock ? options_.wall_clock() : std::chrono::system_clock::now();
}

// The budget of a store that has files but no state (its catalog was lost) begins as spent. A
// process that was killed wrote more than it kept: at least what lies in the files of each hour.
void CacheCore::Impl::restore_state(const Recovery& found) {
  auto wall = wall_now();
  HourBytes written = found.written;
  bool files = found.rows_used + found.adopted + found.unread + found.other_key_files > 0;
  HourBytes more;
  if (found.state)
    more = found.state->written;
  else if (files)
    more = budget_.all_spent(wall);
  for (const auto& [hour, bytes] : more) written[hour] = std::max(written[hour], bytes);
  budget_.restore(written, Clock::now(), wall);
  if (found.state) scrub_after_ = first_name_at(found.state->scrubbed);
  keep_state();
  bool known = found.state && (more.empty() || more.rbegin()->first <= WriteBudget::hour_of(wall));
  if (!known) (void)ssd_->checkpoint();  // from now on it is
}

}  // namespace kv
