// Choice of the objects that are read back, and their reads, a few at a time.
#include "cachesvc/core/warm_start.h"

#include <algorithm>

#include "cachesvc/core/paths.h"

namespace kv {
namespace {

constexpr size_t kReadsAtATime = 4;
constexpr size_t kMostObjects = 65'536;

}  // namespace

void WarmStart::begin() {
  if (!lane_ || env_.options.warm_start_bytes == 0) return;
  realms_.clear();
  for (const auto& realm : index_.realms().all()) realms_.push_back(realm);
  choose(kRootNode);
}

// The most recent objects that their bytes allow, among those on so many nodes more.
void WarmStart::choose(NodeId first) {
  if (env_.draining()) return end();
  const auto realm = realms_.empty() ? nullptr : realms_.back().lock();
  const size_t behind = realm && realm->in_force
                            ? std::min<size_t>(realm->nodes.size(), first + kNodesPerStep)
                            : first;
  for (NodeId node = first; node < behind; ++node) {
    std::vector<Record*> own;
    realm->nodes[node].list(SIZE_MAX, own);
    for (const Record* r : own) consider(*r);
  }
  if (behind > first) return env_.later([this, behind] { choose(static_cast<NodeId>(behind)); });
  if (!realms_.empty()) {
    realms_.pop_back();
    return env_.later([this] { choose(kRootNode); });
  }
  std::make_heap(chosen_.begin(), chosen_.end(), Older());
  bytes_left_ = env_.options.warm_start_bytes;
  for (size_t i = 0; i < kReadsAtATime; ++i) read_next();
}

void WarmStart::consider(const Record& record) {
  if (!record.on_ssd()) return;
  const uint64_t bytes = RamPool::slab_bytes(record.payload_bytes);
  chosen_.push_back({index_.tiers().ssd_of(record).recency(record.key), bytes,
                     PinnedName{record.name, record.serial}});
  std::push_heap(chosen_.begin(), chosen_.end(), Newer());
  chosen_bytes_ += bytes;
  while (chosen_bytes_ - chosen_.front().bytes >= env_.options.warm_start_bytes ||
         chosen_.size() > kMostObjects) {
    chosen_bytes_ -= chosen_.front().bytes;
    std::pop_heap(chosen_.begin(), chosen_.end(), Newer());
    chosen_.pop_back();
  }
}

// Root first, as an object alone serves nothing; nor does one below another that can't be read or
// is gone.
Record* WarmStart::missing_on_path(Record& record) {
  NodeId above = kRootNode;
  for (Record* step : path_to(record)) {
    if (!step->usable(Clock::now()) || parent_node(*step) != above) return nullptr;
    above = step->node;
    if (!step->ram && !promoter_.promoting(*step)) return step;
  }
  return nullptr;
}

void WarmStart::end() {
  std::vector<Chosen>().swap(chosen_);
  chosen_bytes_ = 0;
}

void WarmStart::read_next() {
  if (env_.draining() || promoter_.hangs()) return end();
  while (!chosen_.empty()) {
    Record* wanted = index_.find(chosen_.front().name);
    Record* r = wanted ? missing_on_path(*wanted) : nullptr;
    if (!r) {
      std::pop_heap(chosen_.begin(), chosen_.end(), Older());
      chosen_.pop_back();
      continue;
    }
    const uint64_t bytes = RamPool::slab_bytes(r->payload_bytes);
    if (bytes > bytes_left_) return end();
    auto room = room_.wanted() ? nullptr : room_.try_room(Promoter::room_for(*r));
    if (!room) return end();
    bytes_left_ -= bytes;
    return promoter_.promote(*r, std::move(room->stored), std::move(room->promotion),
                             [this](Status status) {
                               if (status.code() == StatusCode::busy) return end();
                               if (status.ok()) ++env_.count.warm_objects;
                               read_next();
                             });
  }
  end();
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
