// The index's share of RAM, obeyed always: what comes makes room by what was used least. An object
// that leaves the index leaves both tiers, or a later start would find what nobody can erase.
#include <algorithm>
#include <unordered_map>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

constexpr size_t kLookedAt = 256;      // of the least recently used, for one that may go
constexpr size_t kUnlinkedAtOnce = 8;  // files of one job behind others

}  // namespace

uint64_t CacheCore::Impl::index_limit() const {
  return static_cast<uint64_t>(options_.index_fraction *
                               static_cast<double>(pool_->budget_bytes()));
}

bool CacheCore::Impl::index_full(uint64_t bytes) const {
  return bytes > 0 && pool_->used_bytes(ChargeKind::index) + bytes > index_limit();
}

void CacheCore::Impl::check_invariants() const {
  records_.check_invariants();
  KV_CHECK(pool_->used_bytes(ChargeKind::index) <= index_limit());
  KV_CHECK(pool_->used_bytes() <= pool_->budget_bytes());
}

// The SSD's least recently used leaf that nothing in RAM hangs on. Without an SSD, or where nothing
// can be saved there (`dirty_too`), RAM's. Null: none may go.
Record* CacheCore::Impl::index_victim(bool dirty_too) {
  auto leaf = [](const Record& r) {
    if (!r.realm) return true;
    bool main = r.name.kind == ObjectKind::block || r.name.kind == ObjectKind::tail;
    return !main ||
           (r.realm->tree.child_count(r.node) == 0 && r.realm->nodes.at(r.node).attached.empty());
  };
  auto first_of = [&](const EvictionOrder& order, bool with_dirty) -> Record* {
    size_t looked = 0;
    for (uint64_t bytes = 1; looked < kLookedAt;) {
      auto victims = order.next_victims(bytes, with_dirty);
      if (victims.keys.size() <= looked) return nullptr;
      for (; looked < victims.keys.size(); ++looked) {
        Record* r = index_.find_key(victims.keys[looked]);
        bool on_its_way = r->disk == Disk::queued || r->disk == Disk::writing;
        if (r->pins == 0 && !on_its_way && leaf(*r)) return r;
      }
      bytes = 4 * victims.bytes + 1;
    }
    return nullptr;
  };
  if (ssd_) {
    if (Record* r = first_of(index_.ssd(), true)) return r;
  }
  return !ssd_ || dirty_too ? first_of(index_.ram(), true) : nullptr;
}

// Evicts until `bytes` more fit the share. Returns: false if nothing may go, or with
// room_step_over_ if `most_objects` have gone.
bool CacheCore::Impl::make_index_room(uint64_t bytes, bool dirty_too, size_t most_objects) {
  if (!index_full(bytes)) return true;
  auto files = std::make_shared<Unlinks>(weak_from_this());
  std::shared_ptr<WorkerTask> unlink;
  if (ssd_) {
    unlink = ssd_task([ssd = ssd_, files] { return files->run(*ssd); }, [files](Status) {});
    files->parts.emplace_back();
  }
  size_t objects = 0;
  while (index_full(bytes) && objects < most_objects) {
    Record* r = index_victim(dirty_too);
    if (!r) break;
    if (r->file_bytes > 0) {
      note_loss(r->name);
      files->parts.front().push_back(r->name);
    }
    records_.remove(*r);
    ++count_.index_evicted;
    ++objects;
  }
  if (unlink && !files->parts.front().empty()) ssd_lane_->submit(std::move(unlink));
  if (objects > 0) {
    event(
        EventKind::index_full,
        [this] { return "its share is " + std::to_string(index_limit()) + " bytes"; }, objects);
    check_commit_waits();
  }
  if (!index_full(bytes)) return true;
  if (objects == most_objects) {
    room_step_over_ = true;
    room_wake_->ask();
  }
  return false;
}

// Start, with a smaller share than the run before: of what was found the most recently used stays,
// each with all that is before it. The others' files go.
void CacheCore::Impl::keep_most_recent(std::vector<KnownObject>& objects) {
  uint64_t all = 0;
  for (const KnownObject& o : objects)
    all += ObjectIndex::index_bytes(o.header.name.kind, o.header.tokens);
  if (all <= index_limit()) return;
  std::sort(objects.begin(), objects.end(), [](const KnownObject& a, const KnownObject& b) {
    auto attached = [](const Object& o) { return o.name.kind >= ObjectKind::supplement; };
    return std::tuple(a.header.first_token, attached(a.header)) <
           std::tuple(b.header.first_token, attached(b.header));
  });
  std::unordered_map<Id, size_t, IdHash> blocks;  // by id: where
  for (size_t i = 0; i < objects.size(); ++i) {
    const ObjectName& name = objects[i].header.name;
    if (name.kind == ObjectKind::block || name.kind == ObjectKind::tail) blocks[name.id] = i;
  }
  // As recent as what hangs on it.
  std::vector<uint64_t> recency(objects.size());
  std::vector<size_t> order(objects.size());
  for (size_t i = objects.size(); i-- > 0;) {
    const Object& o = objects[i].header;
    order[i] = i;
    recency[i] = std::max(recency[i], objects[i].recency);
    auto parent = blocks.find(o.name.kind == ObjectKind::supplement ? o.name.id : o.parent);
    if (parent != blocks.end() && parent->second < i) {
      recency[parent->second] = std::max(recency[parent->second], recency[i]);
    }
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return recency[a] > recency[b]; });
  std::vector<KnownObject> kept;
  std::vector<ObjectName> dropped;
  uint64_t used = pool_->used_bytes(ChargeKind::index);
  bool full = false;
  for (size_t i : order) {
    used += ObjectIndex::index_bytes(objects[i].header.name.kind, objects[i].header.tokens);
    full |= used > index_limit();
    if (full) {
      dropped.push_back(objects[i].header.name);
    } else {
      kept.push_back(std::move(objects[i]));
    }
  }
  objects = std::move(kept);
  drop_files(std::move(dropped));
}

// Files read in the background that are over the share: what is in the index was used later.
void CacheCore::Impl::drop_over_share(std::vector<KnownObject>& objects) {
  uint64_t bytes = 0;
  std::vector<ObjectName> dropped;
  std::erase_if(objects, [&](const KnownObject& o) {
    bytes += ObjectIndex::index_bytes(o.header.name.kind, o.header.tokens);
    if (!index_full(bytes)) return false;
    dropped.push_back(o.header.name);
    return true;
  });
  drop_files(std::move(dropped));
}

void CacheCore::Impl::drop_files(std::vector<ObjectName> names) {
  if (names.empty()) return;
  count_.index_evicted += names.size();
  event(
      EventKind::index_full,
      [this] { return "its share is " + std::to_string(index_limit()) + " bytes"; }, names.size());
  for (size_t i = 0; i < names.size(); i += kUnlinkedAtOnce) {
    size_t end = std::min(names.size(), i + kUnlinkedAtOnce);
    auto files = std::make_shared<Unlinks>(weak_from_this());
    files->parts.emplace_back(names.begin() + static_cast<ptrdiff_t>(i),
                              names.begin() + static_cast<ptrdiff_t>(end));
    std::multiset<ObjectName> part(files->parts.front().begin(), files->parts.front().end());
    auto unlink = ssd_task([ssd = ssd_, files] { return files->run(*ssd); }, [files](Status) {});
    files->behind = true;
    unlinking_.merge(part);
    ssd_lane_->submit_behind(std::move(unlink));
  }
}

}  // namespace kv
