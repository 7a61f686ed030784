// Choice of the objects that are read back, and their reads, a few at a time.
#include "cachesvc/core/warm_start.h"

#include <algorithm>
#include <set>

#include "cachesvc/core/paths.h"

namespace kv {
namespace {

constexpr size_t kReadsAtATime = 4;

}  // namespace

void WarmStart::begin() {
  const uint64_t most = env_.options.warm_start_bytes;
  if (!lane_ || most == 0) return;
  std::vector<std::pair<uint64_t, Record*>> recent;  // a heap: the most recent first
  for (auto& realm : index_.realms().all()) {
    if (!realm->in_force) continue;
    for (const RealmState::Node& node : realm->nodes) {
      std::vector<Record*> own;
      node.attached.list(SIZE_MAX, own);
      if (node.main) own.push_back(node.main);
      for (Record* r : own) {
        if (r->on_ssd()) recent.emplace_back(index_.tiers().ssd_of(*r).recency(r->key), r);
      }
    }
  }
  auto older = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::make_heap(recent.begin(), recent.end(), older);
  std::set<Record*> chosen;
  uint64_t bytes = 0;
  while (!recent.empty() && bytes <= most) {
    std::pop_heap(recent.begin(), recent.end(), older);
    Record* r = recent.back().second;
    recent.pop_back();
    for (Record* step : path_to(*r)) {  // root first: an object alone serves nothing
      if (!step->on_ssd() || !chosen.insert(step).second) continue;
      bytes += RamPool::slab_bytes(step->payload_bytes);
      if (bytes > most) break;
      left_.push_back({step->name, step->serial});
    }
  }
  for (size_t i = 0; i < kReadsAtATime; ++i) read_next();
}

void WarmStart::read_next() {
  while (!left_.empty() && !promoter_.hangs()) {
    Record* r = index_.find(left_.front());
    left_.pop_front();
    if (!r || r->ram || !r->on_ssd() || promoter_.promoting(*r)) continue;
    auto room = room_.wanted() ? nullptr : room_.try_room(Promoter::room_for(*r));
    if (!room) return left_.clear();
    return promoter_.promote(*r, std::move(room->stored), std::move(room->promotion),
                             [this](Status status) {
                               if (status.ok()) ++env_.count.warm_objects;
                               read_next();
                             });
  }
}

void WarmStart::keep_ready() {
  if (ready_after_ == env_.count.promotions || making_ready_ || !promoter_.idle()) return;
  ready_after_ = env_.count.promotions;
  if (!lane_ || index_.size() == 0 || !env_.pool->lacks_ready(env_.options.ready_bytes)) return;
  making_ready_ = true;
  env_.on_worker(
      [ssd = lane_.ssd(), pool = env_.pool, bytes = env_.options.ready_bytes] {
        ssd->make_ready();  // first: every file that is read waits for it
        pool->make_ready(bytes);
        return true;
      },
      [this](bool) { making_ready_ = false; });
}

}  // namespace kv
