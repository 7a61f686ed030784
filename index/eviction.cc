// EvictionOrder: a map of entries and the ordered sets of those that are free to go, clean and
// dirty.
//
// Every change of an entry takes it out of its set, applies, and puts it back if it is free then.
// The sets link the map's own nodes, so no change but an insert needs memory, and none searches for
// an entry that it has; what was touched last is put at the end of its set without a search too.
// An entry that is gone stays in the map, not resident, while resident children name it as parent:
// so there are never more such than resident entries, and a parent that returns knows its children.
#include "index/eviction.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <unordered_map>

#include "proto/status.h"

namespace kv {
namespace {

// Parts of an ordinary entry's stay: one for each doubling of the cost. With 16 a replay of two
// models' prompts saves more prefill and serves as much (bench/trace_bench); with 4 it serves less.
constexpr uint64_t kWorthParts = 16;
constexpr uint64_t kNewest = (uint64_t{1} << 62) - 1;

}  // namespace

EvictionOrder::Entry* EvictionOrder::find(EntryKey key) {
  Entry* e = entries_.find(key);
  return e == nullptr || !e->resident ? nullptr : e;
}

const EvictionOrder::Entry* EvictionOrder::find(EntryKey key) const {
  const Entry* e = entries_.find(key);
  return e == nullptr || !e->resident ? nullptr : e;
}

EvictionOrder::Entry& EvictionOrder::made(EntryKey key) {
  Entry& e = entries_[key];
  e.key = key;
  return e;
}

template <typename Change>
void EvictionOrder::change(Entry& e, Change&& apply) {
  if (free_to_go(e)) victims_of(e).erase(Ranks::s_iterator_to(e));
  apply(e);
  if (free_to_go(e)) victims_of(e).insert(victims_of(e).end(), e);
}

// Ticks since the last use of the ordinary entry that goes next.
uint64_t EvictionOrder::ordinary_stay() const {
  uint64_t oldest = clock_;
  for (const Ranks* ranks : {&clean_victims_, &dirty_victims_}) {
    const auto first = ranks->lower_bound(Rank{UINT32_MAX - kDropLast, 0, 0}, BeforeRank());
    if (first != ranks->end() && first->urgency == kDropLast) {
      oldest = std::min(oldest, first->recency);
    }
  }
  return clock_ - oldest;
}

// The recency of an entry that is used now.
uint64_t EvictionOrder::newest_of(Worth worth) const {
  if (worth == 0) return clock_;
  const uint64_t steps = static_cast<uint64_t>(std::min(std::abs(int{worth}), int{kMostWorth}));
  const uint64_t shift = ordinary_stay() / kWorthParts * steps;
  return worth > 0 ? std::min(kNewest, clock_ + shift) : clock_ - std::min(clock_, shift);
}

bool EvictionOrder::insert(EntryKey key, const EntryOptions& options) {
  if (key == kNoEntry || options.parent == key || find(key) != nullptr) return false;
  Entry& own = made(key);
  if (options.parent != kNoEntry) change(made(options.parent), [](Entry& e) { ++e.children; });
  const uint64_t given = std::min(options.recency.value_or(clock_ + 1), kNewest);
  clock_ = std::max(clock_, given);
  const uint64_t recency = options.recency ? given : newest_of(options.worth);
  change(own, [&](Entry& e) {
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
  change(*e, [](Entry& gone) { gone.resident = false; });
  if (e->children == 0) entries_.erase(key);
  --resident_;
  if (parent == kNoEntry) return true;
  Entry* up = entries_.find(parent);
  KV_CHECK(up != nullptr && up->children > 0);
  change(*up, [](Entry& p) { --p.children; });
  if (!up->resident && up->children == 0) entries_.erase(parent);
  return true;
}

bool EvictionOrder::touch(EntryKey key) {
  touch_all({&key, 1});
  return resident(key);
}

// Entries are found in groups before the first is changed, so that their cache misses overlap.
void EvictionOrder::touch_all(std::span<const EntryKey> keys, Worth worth) {
  ++clock_;
  const uint64_t now = newest_of(worth);
  std::array<Entry*, 32> found;
  while (!keys.empty()) {
    const auto some = keys.first(std::min(keys.size(), found.size()));
    for (EntryKey key : some) entries_.prefetch(key);
    std::transform(some.begin(), some.end(), found.begin(),
                   [this](EntryKey key) { return find(key); });
    for (Entry* e : std::span(found).first(some.size())) {
      if (e) change(*e, [&](Entry& x) { x.recency = now; });
    }
    keys = keys.subspan(some.size());
  }
}

bool EvictionOrder::set_dirty(EntryKey key, bool dirty) {
  Entry* e = find(key);
  if (e != nullptr) change(*e, [&](Entry& x) { x.dirty = dirty; });
  return e != nullptr;
}

bool EvictionOrder::set_urgency(EntryKey key, DropUrgency urgency) {
  Entry* e = find(key);
  if (e != nullptr) change(*e, [&](Entry& x) { x.urgency = urgency; });
  return e != nullptr;
}

bool EvictionOrder::pin(EntryKey key) {
  Entry* e = find(key);
  if (e == nullptr || e->pins == UINT32_MAX) return false;
  change(*e, [](Entry& x) { ++x.pins; });
  return true;
}

bool EvictionOrder::unpin(EntryKey key) {
  Entry* e = find(key);
  if (e == nullptr || e->pins == 0) return false;
  change(*e, [](Entry& x) { --x.pins; });
  return true;
}

// State of a walk: a place in each set, and the parents that the victims so far set free.
struct EvictionOrder::Walk::State {
  const EvictionOrder& order;
  Ranks::const_iterator clean, dirty;
  std::set<Rank> clean_parents, dirty_parents;
  std::unordered_map<EntryKey, uint32_t> children_left;

  const Entry* pick(Ranks::const_iterator& next, const Ranks& victims, std::set<Rank>& parents) {
    const bool listed = next != victims.end();
    if (parents.empty() || (listed && rank(*next) < *parents.begin())) {
      return listed ? &*next++ : nullptr;
    }
    const EntryKey key = parents.begin()->key;
    parents.erase(parents.begin());
    return order.entries_.find(key);
  }
  void set_free(const Entry& victim) {
    if (victim.parent == kNoEntry) return;
    const Entry& up = *order.entries_.find(victim.parent);
    auto& left = children_left.try_emplace(victim.parent, up.children).first->second;
    if (--left > 0 || !up.resident || up.pins > 0) return;
    (up.dirty ? dirty_parents : clean_parents).insert(rank(up));
  }
};

EvictionOrder::Walk::Walk(const EvictionOrder& order)
    : state_(std::make_shared<State>(
          State{order, order.clean_victims_.begin(), order.dirty_victims_.begin(), {}, {}, {}})) {}

std::optional<EvictionOrder::Walk::Victim> EvictionOrder::Walk::next(bool dirty_too) {
  State& s = *state_;
  const Entry* e = s.pick(s.clean, s.order.clean_victims_, s.clean_parents);
  if (!e && dirty_too) e = s.pick(s.dirty, s.order.dirty_victims_, s.dirty_parents);
  if (!e) return std::nullopt;
  s.set_free(*e);
  return Victim{e->key, e->charge};
}

bool EvictionOrder::Walk::has_dirty() const {
  return state_->dirty != state_->order.dirty_victims_.end() || !state_->dirty_parents.empty();
}

EvictionOrder::Victims EvictionOrder::next_victims(uint64_t bytes_needed, bool dirty_too) const {
  Victims out;
  Walk walk(*this);
  while (out.bytes < bytes_needed) {
    auto victim = walk.next(dirty_too);
    if (!victim) break;
    out.keys.push_back(victim->key);
    out.bytes += victim->charge_bytes;
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
bool EvictionOrder::has_children(EntryKey key) const {
  const Entry* e = find(key);
  return e != nullptr && e->children > 0;
}
bool EvictionOrder::dirty(EntryKey key) const {
  const Entry* e = find(key);
  return e != nullptr && e->dirty;
}

uint64_t EvictionOrder::memory_bytes() const {
  constexpr uint64_t kMapNodeBytes = sizeof(Entry) + 32;  // with malloc's overhead
  return entries_.size() * kMapNodeBytes + entries_.bucket_count() * sizeof(void*);
}

}  // namespace kv
