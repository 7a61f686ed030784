// Sums follow changes of segments: a segment's part is taken out before, and added after.
#include "memory/segment_store.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "memory/slab_region.h"

namespace kv {

// Counts a segment. Called with the lock held, as all that follow.
void SegmentStore::count(const Segment& segment, bool add) {
  auto sum = [add](std::atomic<uint64_t>& into, uint64_t bytes) {
    add ? into.fetch_add(bytes, std::memory_order_relaxed)
        : into.fetch_sub(bytes, std::memory_order_relaxed);
  };
  if (segment.state() == Segment::State::open) {
    sum(idle_, segment.idle_bytes() - segment.idle_table_bytes());
    return sum(fixed_idle_, segment.idle_table_bytes());
  }
  sum(fixed_idle_, segment.idle_bytes());
  sum(announced_, segment.bytes());
  if (segment.state() == Segment::State::retired) sum(retired_idle_, segment.idle_bytes());
}

template <class Change>
void SegmentStore::change(Segment& segment, Change change) {
  count(segment, false);
  change(segment);
  count(segment, true);
}

Segment* SegmentStore::find(uint32_t id) const {
  auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second;
}

Segment* SegmentStore::holder(const uint8_t* at) const {
  auto after = segments_.upper_bound(at);
  if (after == segments_.begin()) return nullptr;
  Segment* s = std::prev(after)->second.get();
  return at < s->begin() + s->bytes() ? s : nullptr;
}

// Takes out an empty segment that no client has and that may go; null: there is none.
template <class May>
std::unique_ptr<Segment> SegmentStore::take_empty(May may) {
  for (auto it = segments_.begin(); it != segments_.end(); ++it) {
    Segment& s = *it->second;
    if (s.live_bytes() > 0 || s.viewed() || s.discarding()) continue;
    if (s.state() == Segment::State::sealing || !may(s)) continue;
    count(s, false);
    by_id_.erase(s.id());
    auto out = std::move(it->second);
    segments_.erase(it);
    return out;
  }
  return nullptr;
}

// A new segment of `owner` with room for `bytes`; null: there may be none. `gone`: one that made
// room for it, to be unmapped outside of the lock.
Segment* SegmentStore::add(std::string_view owner, size_t bytes, uint64_t owned_bytes,
                           std::unique_ptr<Segment>& gone) {
  if (segments_.size() >= kMaxSegments) {
    gone = take_empty([](const Segment&) { return true; });
    if (!gone) return nullptr;
  }
  // A table for n bytes is n / 512 of them.
  const size_t with_table = bytes + bytes / 256 + 2 * kSlotPageBytes;
  // A quarter of the owner's memory: an owner with little keeps little idle.
  const size_t usual =
      std::clamp(round_up(owned_bytes / 4, kHugePageBytes), kHugePageBytes, segment_bytes_);
  const size_t size = std::max(usual, round_up(with_table, kHugePageBytes));
  auto fresh = Segment::create(last_id_ + 1, std::string(owner), size);
  if (!fresh) return nullptr;
  Segment* s = fresh.get();
  by_id_[++last_id_] = s;
  segments_[s->begin()] = std::move(fresh);
  count(*s, true);
  return s;
}

uint8_t* SegmentStore::take(std::string_view owner, size_t bytes, uint64_t spare_bytes) {
  std::unique_ptr<Segment> gone;
  std::unique_lock lock(mutex_);
  uint8_t* slot = nullptr;
  std::vector<size_t> fresh;
  auto take_of = [&](Segment& s) { slot = s.take(bytes, spare_bytes, fresh); };
  uint64_t owned_bytes = 0;
  Segment* from = nullptr;
  for (const auto& [id, s] : by_id_) {
    if (s->owner() != owner) continue;
    owned_bytes += s->bytes();
    change(*s, take_of);
    if (slot == nullptr) continue;
    from = s;
    break;
  }
  if (slot == nullptr) {
    from = add(owner, bytes, owned_bytes, gone);
    if (from == nullptr) return nullptr;
    change(*from, take_of);
  }
  if (fresh.empty()) return slot;
  lock.unlock();  // the slot keeps the segment here
  from->back(slot, fresh);
  lock.lock();
  change(*from, [&](Segment& s) { s.backed(fresh); });
  return slot;
}

void SegmentStore::give(uint8_t* slot, size_t bytes) noexcept {
  std::lock_guard lock(mutex_);
  Segment* s = holder(slot);
  if (s == nullptr) {
    std::fprintf(stderr, "segments: memory is given back that is in none\n");
    std::abort();
  }
  change(*s, [&](Segment& segment) { segment.give(slot, bytes); });
}

// Does a step of a trim; false if there is nothing to do, or the system refuses.
bool SegmentStore::give_back(uint64_t keep_bytes) {
  std::unique_lock lock(mutex_);
  const uint64_t have = idle_bytes();
  if (have <= keep_bytes) return false;
  for (auto& [begin, s] : segments_) {
    const Segment::Range range = s->idle_range(have - keep_bytes);
    if (range.pages == 0) continue;
    lock.unlock();  // pages on their way out keep the segment here
    const bool gone = s->discard(range);
    lock.lock();
    change(*s, [&](Segment& segment) { segment.discarded(range, gone); });
    return gone;
  }
  return false;
}

void SegmentStore::trim(uint64_t keep_bytes) noexcept {
  auto over = [&] {
    const uint64_t have = idle_bytes() + fixed_idle_bytes();
    return have - std::min(have, keep_bytes);
  };
  for (bool more = true; more && over() > 0;) {
    std::unique_ptr<Segment> gone;  // unmapped outside of the lock
    std::lock_guard lock(mutex_);
    gone = take_empty([most = over()](const Segment& s) {
      return s.announced() || s.idle_bytes() <= most;  // others can give back a part
    });
    more = gone != nullptr;
  }
  while (idle_bytes() > keep_bytes - std::min(keep_bytes, fixed_idle_bytes()) &&
         give_back(keep_bytes - std::min(keep_bytes, fixed_idle_bytes()))) {
  }
}

std::optional<SegmentPlace> SegmentStore::place_of(std::string_view owner,
                                                   const uint8_t* slot) const {
  std::lock_guard lock(mutex_);
  const Segment* s = holder(slot);
  if (s == nullptr || s->owner() != owner) return std::nullopt;
  const auto offset = static_cast<size_t>(slot - s->begin());
  if (offset % kSlotPageBytes != 0) return std::nullopt;
  return SegmentPlace{s->id(), offset, s->generation(offset), s->announced()};
}

uint64_t SegmentStore::missing_bytes(uint32_t id) const {
  std::lock_guard lock(mutex_);
  const Segment* s = find(id);
  return s == nullptr || s->state() != Segment::State::open ? 0 : s->missing_bytes();
}

uint64_t SegmentStore::bytes_once_announced(uint32_t id) const {
  std::lock_guard lock(mutex_);
  const Segment* s = find(id);
  return s == nullptr || s->announced() ? 0 : s->bytes();
}

uint64_t SegmentStore::idle_once_announced(uint32_t id) const {
  std::lock_guard lock(mutex_);
  const Segment* s = find(id);
  return s == nullptr || s->announced() ? 0 : s->bytes() - s->live_bytes();
}

std::vector<uint32_t> SegmentStore::open_of(std::string_view owner) const {
  std::lock_guard lock(mutex_);
  std::vector<uint32_t> ids;
  for (const auto& [id, s] : by_id_) {
    const bool open = s->state() == Segment::State::open;
    if (open && s->live_bytes() > 0 && s->owner() == owner) ids.push_back(id);
  }
  return ids;
}

std::shared_ptr<const SegmentView> SegmentStore::announce(uint32_t id) {
  std::unique_lock lock(mutex_);
  Segment* s = nullptr;
  sealed_.wait(lock, [&] {
    s = find(id);
    return s == nullptr || s->state() != Segment::State::sealing;
  });
  if (s == nullptr || s->discarding()) return nullptr;
  if (s->announced()) return s->view();
  change(*s, [](Segment& segment) { segment.seal_begun(); });
  lock.unlock();  // a segment that is being sealed stays
  const bool sealed = s->seal();
  lock.lock();
  change(*s, [sealed](Segment& segment) { segment.seal_ended(sealed); });
  sealed_.notify_all();
  return sealed ? s->view() : nullptr;
}

uint32_t SegmentStore::retire_emptiest() {
  std::lock_guard lock(mutex_);
  Segment* emptiest = nullptr;
  for (const auto& [id, s] : by_id_) {
    if (s->state() != Segment::State::announced) continue;
    if (emptiest == nullptr || s->idle_bytes() > emptiest->idle_bytes()) emptiest = s;
  }
  if (emptiest == nullptr) return 0;
  change(*emptiest, [](Segment& segment) { segment.retire(); });
  return emptiest->id();
}

bool SegmentStore::in_retired(const uint8_t* at) const {
  std::lock_guard lock(mutex_);
  const Segment* s = holder(at);
  return s != nullptr && s->state() == Segment::State::retired;
}

void SegmentStore::close_retired() noexcept {
  for (bool more = true; more;) {
    std::unique_ptr<Segment> gone;  // unmapped outside of the lock
    std::lock_guard lock(mutex_);
    gone = take_empty([](const Segment& s) { return s.state() == Segment::State::retired; });
    more = gone != nullptr;
  }
}

uint64_t SegmentStore::announced_bytes(
    const std::function<bool(const std::string& owner)>& of) const {
  std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& [begin, s] : segments_) {
    if (s->announced() && of(s->owner())) bytes += s->bytes();
  }
  return bytes;
}

size_t SegmentStore::segments() const {
  std::lock_guard lock(mutex_);
  return segments_.size();
}

void SegmentStore::check_invariants() const {
  std::lock_guard lock(mutex_);
  SegmentStore sums(segment_bytes_);
  for (const auto& [begin, s] : segments_) {
    s->check_invariants();
    sums.count(*s, true);
  }
  const bool holds =
      sums.idle_bytes() == idle_bytes() && sums.fixed_idle_bytes() == fixed_idle_bytes() &&
      sums.retired_idle_bytes() == retired_idle_bytes() &&
      sums.announced_bytes() == announced_bytes() && by_id_.size() == segments_.size();
  if (holds) return;
  std::fprintf(stderr, "segments: sums are not those of the segments\n");
  std::abort();
}

}  // namespace kv
