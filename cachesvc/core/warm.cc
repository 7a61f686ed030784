// warm start: the most recently used objects are brought back into RAM after a restart, in the
// background: nothing is evicted for them, and it ends as soon as RAM is wanted by others. And
// memory is kept ready for the next promotion.
#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

constexpr size_t kReadsAtATime = 4;

}  // namespace

void CacheCore::Impl::warm_start() {
  if (!ssd_ || options_.warm_start_bytes == 0) return;
  std::vector<std::pair<uint64_t, Record*>> recent;  // a heap: the most recent first
  for (auto& realm : index_.realms()) {
    if (!realm->in_force) continue;
    for (const RealmState::Node& node : realm->nodes) {
      std::vector<Record*> own = node.attached;
      if (node.main) own.push_back(node.main);
      for (Record* r : own) {
        if (r->on_ssd()) recent.emplace_back(index_.ssd().recency(r->key), r);
      }
    }
  }
  auto older = [](const auto& a, const auto& b) { return a.first < b.first; };
  std::make_heap(recent.begin(), recent.end(), older);
  auto left = std::make_shared<std::deque<PinnedName>>();
  std::set<Record*> chosen;
  uint64_t bytes = 0;
  while (!recent.empty()) {
    std::pop_heap(recent.begin(), recent.end(), older);
    Record* r = recent.back().second;
    recent.pop_back();
    for (Record* step : index_.path_to(*r)) {  // root first: an object alone serves nothing
      if (!step->on_ssd() || !chosen.insert(step).second) continue;
      bytes += RamPool::slab_bytes(step->payload_bytes);
      if (bytes > options_.warm_start_bytes) break;
      left->push_back({step->name, step->serial});
    }
    if (bytes > options_.warm_start_bytes) break;
  }
  for (size_t i = 0; i < kReadsAtATime; ++i) warm_next(left);
}

// After a start and after promotions, while nobody waits for one.
void CacheCore::Impl::keep_ready() {
  bool wanted = ssd_ && index_.size() > 0 && promotions_.empty() && !making_ready_;
  if (!wanted || !pool_->lacks_ready(options_.ready_bytes)) return;
  auto job = task(
      [ssd = ssd_, pool = pool_, bytes = options_.ready_bytes] {
        ssd->make_ready();  // first: every file that is read waits for it
        pool->make_ready(bytes);
        return true;
      },
      [this](bool) { making_ready_ = false; });
  job->submit(workers_);
  making_ready_ = true;
}

void CacheCore::Impl::warm_next(std::shared_ptr<std::deque<PinnedName>> left) {
  while (!left->empty() && !reads_hang()) {
    Record* r = find_pinned(left->front());
    left->pop_front();
    if (!r || r->ram || !r->on_ssd() || promoting(*r)) continue;
    auto room = room_waiters_.empty() ? try_room(room_to_promote(*r)) : nullptr;
    if (!room) return left->clear();
    promote(*r, std::move(room->stored), std::move(room->promotion), [this, left](Status status) {
      if (status.ok()) ++count_.warm_objects;
      warm_next(left);
    });
    return;
  }
}

}  // namespace kv
