// EvictionOrder: a map of entries and the ordered set of those that are free to go.
//
// Every change of an entry takes it out of the set, applies, and puts it back if it is still free:
// the same node of the set each time, so that no change but an insert needs memory.
// An entry that is gone stays in the map, not resident, while resident children name it as parent:
// so there are never more such than resident entries, and a parent that returns knows its children.
#include "index/eviction.h"

#include <algorithm>
#include <new>

#include "proto/status.h"

namespace kv {
namespace {

constexpr int kRecencyBits = 62;

}  // namespace

EvictionOrder::Rank EvictionOrder::rank(EntryKey key, const Entry& e) {
  return {uint64_t{e.dirty} << 32 | (UINT32_MAX - e.urgency), e.recency, key};
}

EvictionOrder::Entry* EvictionOrder::find(EntryKey key) {
  auto it = entries_.find(key);
  return it == entries_.end() || !it->second.resident ? nullptr : &it->second;
}

const EvictionOrder::Entry* EvictionOrder::find(EntryKey key) const {
  auto it = entries_.find(key);
  return it == entries_.end() || !it->second.resident ? nullptr : &it->second;
}

template <typename Change>
void EvictionOrder::change(EntryKey key, Entry& e, Change&& apply) {
  if (free_to_go(e)) e.place = victims_.extract(rank(key, e));
  apply(e);
  if (!free_to_go(e)) return;
  e.place.value() = rank(key, e);
  victims_.insert(std::move(e.place));
}

bool EvictionOrder::insert(EntryKey key, const EntryOptions& options) {
  if (key == kNoEntry || options.parent == key || find(key) != nullptr) return false;
  Ranks one{Rank{0, 0, key}};
  Entry& own = entries_[key];
  Entry* parent = nullptr;
  try {
    if (options.parent != kNoEntry) parent = &entries_[options.parent];
  } catch (const std::bad_alloc&) {
    if (own.children == 0) entries_.erase(key);
    throw;
  }
  own.place = one.extract(one.begin());
  if (parent != nullptr) change(options.parent, *parent, [](Entry& e) { ++e.children; });
  const uint64_t newest = (uint64_t{1} << kRecencyBits) - 1;
  const uint64_t recency = std::min(options.recency.value_or(clock_ + 1), newest);
  clock_ = std::max(clock_, recency);
  change(key, own, [&](Entry& e) {
    e.parent = options.parent;
    e.charge = options.charge_bytes;
    e.recency = recency;
    e.pins = 0;
    e.resident = true;
    e.dirty = options.dirty;
    e.urgency = options.urgency;
  });
  ++resident_;
  return true;
}

bool EvictionOrder::erase(EntryKey key) {
  Entry* e = find(key);
  if (e == nullptr || e->pins > 0) return false;
  const EntryKey parent = e->parent;
  change(key, *e, [](Entry& gone) { gone.resident = false; });
  e->place = {};
  if (e->children == 0) entries_.erase(key);
  --resident_;
  if (parent == kNoEntry) return true;
  auto up = entries_.find(parent);
  KV_CHECK(up != entries_.end() && up->second.children > 0);
  change(parent, up->second, [](Entry& p) { --p.children; });
  if (!up->second.resident && up->second.children == 0) entries_.erase(up);
  return true;
}

bool EvictionOrder::touch(EntryKey key) {
  touch_all({&key, 1});
  return resident(key);
}

void EvictionOrder::touch_all(std::span<const EntryKey> keys) {
  ++clock_;
  for (EntryKey key : keys) {
    if (Entry* e = find(key)) change(key, *e, [&](Entry& x) { x.recency = clock_; });
  }
}

bool EvictionOrder::set_dirty(EntryKey key, bool dirty) {
  Entry* e = find(key);
  if (e != nullptr) change(key, *e, [&](Entry& x) { x.dirty = dirty; });
  return e != nullptr;
}

bool EvictionOrder::set_urgency(EntryKey key, DropUrgency urgency) {
  Entry* e = find(key);
  if (e != nullptr) change(key, *e, [&](Entry& x) { x.urgency = urgency; });
  return e != nullptr;
}

bool EvictionOrder::pin(EntryKey key) {
  Entry* e = find(key);
  if (e == nullptr || e->pins == UINT32_MAX) return false;
  change(key, *e, [](Entry& x) { ++x.pins; });
  return true;
}

bool EvictionOrder::unpin(EntryKey key) {
  Entry* e = find(key);
  if (e == nullptr || e->pins == 0) return false;
  change(key, *e, [](Entry& x) { --x.pins; });
  return true;
}

EvictionOrder::Victims EvictionOrder::next_victims(uint64_t bytes_needed, bool dirty_too) const {
  Victims out;
  std::set<Rank> parents;  // that the victims chosen so far set free
  std::unordered_map<EntryKey, uint32_t> children_left;
  auto next = victims_.begin();
  while (out.bytes < bytes_needed) {
    const bool from_parents =
        !parents.empty() && (next == victims_.end() || *parents.begin() < *next);
    if (!from_parents && next == victims_.end()) break;
    const EntryKey key = from_parents ? parents.begin()->key : next->key;
    const Entry& e = entries_.at(key);
    if (e.dirty && !dirty_too) break;  // dirty ones come last in both orders
    if (from_parents) {
      parents.erase(parents.begin());
    } else {
      ++next;
    }
    out.keys.push_back(key);
    out.bytes += e.charge;
    if (e.parent == kNoEntry) continue;
    const Entry& up = entries_.at(e.parent);
    auto& left = children_left.try_emplace(e.parent, up.children).first->second;
    if (--left == 0 && up.resident && up.pins == 0) parents.insert(rank(e.parent, up));
  }
  return out;
}

bool EvictionOrder::resident(EntryKey key) const { return find(key) != nullptr; }

uint64_t EvictionOrder::charge_bytes(EntryKey key) const {
  const Entry* e = find(key);
  return e != nullptr ? e->charge : 0;
}
uint64_t EvictionOrder::recency(EntryKey key) const {
  const Entry* e = find(key);
  return e != nullptr ? e->recency : 0;
}
uint32_t EvictionOrder::pins(EntryKey key) const {
  const Entry* e = find(key);
  return e != nullptr ? e->pins : 0;
}
bool EvictionOrder::dirty(EntryKey key) const {
  const Entry* e = find(key);
  return e != nullptr && e->dirty;
}
DropUrgency EvictionOrder::urgency(EntryKey key) const {
  const Entry* e = find(key);
  return e != nullptr ? e->urgency : kDropLast;
}

uint64_t EvictionOrder::memory_bytes() const {
  constexpr uint64_t kMapNodeBytes = sizeof(Entry) + 32, kSetNodeBytes = 72;  // with malloc
  return entries_.size() * kMapNodeBytes + entries_.bucket_count() * sizeof(void*) +
         resident_ * kSetNodeBytes;
}

}  // namespace kv
