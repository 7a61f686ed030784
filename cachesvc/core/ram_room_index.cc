// The index's share of RAM: evictions when it is full, and unlinks of the evicted files.
#include <algorithm>

#include "cachesvc/core/ram_room.h"

namespace kv {
namespace {

constexpr size_t kLookedAt = 256;      // least recently used objects, for one that may go
constexpr size_t kUnlinkedAtOnce = 8;  // files per job behind others

// True if nothing hangs on the record or goes on from it.
bool is_leaf(const Record& r) {
  if (!r.realm) return true;
  return !is_main(r.name.kind) ||
         (r.realm->tree.child_count(r.node) == 0 && r.realm->nodes.at(r.node).attached.empty());
}

}  // namespace

uint64_t RamRoom::index_limit() const {
  return static_cast<uint64_t>(env_.options.index_fraction *
                               static_cast<double>(env_.pool->most_bytes()));
}

bool RamRoom::index_full(uint64_t bytes) const {
  return bytes > 0 && env_.pool->used_bytes(ChargeKind::index) + bytes > index_limit();
}

void RamRoom::check_invariants() const {
  KV_CHECK(env_.pool->used_bytes(ChargeKind::index) <= index_limit());
  KV_CHECK(env_.pool->used_bytes() <= env_.pool->most_bytes());
  KV_CHECK(waiters_.empty() || env_.room_wanted);
  KV_CHECK(std::is_sorted(waiters_.begin(), waiters_.end(),
                          [](const Waiter& a, const Waiter& b) { return a.turn < b.turn; }));
}

// The SSD's least recently used leaf that nothing in RAM hangs on. Without an SSD, or where nothing
// can be saved there (`dirty_too`), RAM's. Null: none may go.
Record* RamRoom::index_victim(bool dirty_too) {
  auto first_of = [&](const Shares& order) -> Record* {
    size_t looked = 0;
    for (uint64_t bytes = 1; looked < kLookedAt;) {
      auto victims = order.next_victims(bytes, true);
      if (victims.keys.size() <= looked) return nullptr;
      for (; looked < victims.keys.size(); ++looked) {
        Record* r = index_.find_key(victims.keys[looked]);
        bool on_its_way = r->disk == Disk::queued || r->disk == Disk::writing;
        if (r->pins == 0 && !on_its_way && is_leaf(*r)) return r;
      }
      bytes = 4 * victims.bytes + 1;
    }
    return nullptr;
  };
  if (lane_) {
    if (Record* r = first_of(index_.tiers().ssd())) return r;
  }
  return !lane_ || dirty_too ? first_of(index_.tiers().ram()) : nullptr;
}

bool RamRoom::make_index_room(uint64_t bytes, bool dirty_too, size_t most_objects,
                              bool& more_may_go) {
  if (!index_full(bytes)) return true;
  std::vector<ObjectName> files;
  size_t objects = 0;
  while (index_full(bytes) && objects < most_objects) {
    Record* r = index_victim(dirty_too);
    if (!r) break;
    if (r->file.bytes > 0) {
      lane_.lost().note(r->name);
      files.push_back(r->name);
    }
    note_eviction(env_, *r, r->on_ssd() ? Leaves::ssd : Leaves::ram, true);
    records_.remove(*r, {Missing::evicted_index});
    ++objects;
  }
  lane_.unlink(std::move(files));
  if (objects > 0) {
    env_.count.index_evicted += objects;
    tell_index_full(objects);
    env_.progress();
  }
  more_may_go = index_full(bytes) && objects == most_objects;
  return !index_full(bytes);
}

void RamRoom::drop_files(std::vector<ObjectName> names) {
  if (names.empty()) return;
  env_.count.index_evicted += names.size();
  tell_index_full(names.size());
  for (size_t i = 0; i < names.size(); i += kUnlinkedAtOnce) {
    auto first = names.begin() + static_cast<ptrdiff_t>(i);
    auto end = names.begin() + static_cast<ptrdiff_t>(std::min(names.size(), i + kUnlinkedAtOnce));
    lane_.unlink_behind({first, end}, false);
  }
}

void RamRoom::tell_index_full(size_t objects) const {
  env_.event(
      EventKind::index_full,
      [this] { return "its share is " + std::to_string(index_limit()) + " bytes"; }, objects);
}

}  // namespace kv
