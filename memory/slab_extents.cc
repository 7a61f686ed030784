// Extents are nodes of three intrusive trees, so that giving back allocates nothing: a taker brings
// the node for what it leaves.
#include "memory/slab_extents.h"

#include <algorithm>
#include <atomic>
#include <boost/intrusive/set.hpp>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <new>

#include "memory/slab_region.h"

namespace kv {
namespace {

namespace bi = boost::intrusive;

struct Extent {
  bi::set_member_hook<> in_order, in_sizes, in_paged;
  SlabRegion* region = nullptr;
  uint8_t* begin = nullptr;
  size_t size = 0;
  size_t paged = 0;   // bytes that may have memory, if free
  bool free = false;  // live, or busy in a trim
};

struct ByBegin {
  using type = const uint8_t*;
  type operator()(const Extent& e) const { return e.begin; }
};
struct BySize {
  using type = std::pair<size_t, const uint8_t*>;
  type operator()(const Extent& e) const { return {e.size, e.begin}; }
};
struct ByPaged {
  using type = std::pair<size_t, const uint8_t*>;
  type operator()(const Extent& e) const { return {e.paged, e.begin}; }
};
template <class Key, bi::set_member_hook<> Extent::*Hook>
using Tree =
    bi::set<Extent, bi::member_hook<Extent, bi::set_member_hook<>, Hook>, bi::key_of_value<Key>>;

bool is_region(const Extent& e) { return e.size == e.region->size(); }

[[noreturn]] void never_taken() {
  std::fprintf(stderr, "slabs: memory is given back that was not taken, or not as much of it\n");
  std::abort();
}

}  // namespace

struct SlabExtents::State {
  std::mutex mutex;                           // guards the trees and the bits of the regions
  Tree<ByBegin, &Extent::in_order> order;     // all extents
  Tree<BySize, &Extent::in_sizes> sizes;      // free ones
  Tree<ByPaged, &Extent::in_paged> by_paged;  // free ones
  std::atomic<uint64_t> paged_bytes{0}, mapped_bytes{0};

  struct Range {
    Extent* extent = nullptr;
    uint8_t* begin = nullptr;
    size_t size = 0;
  };

  void add_free(Extent& e);
  void remove_free(Extent& e);
  Extent* best_fit(size_t size);
  Extent& release(Extent& e);
  Range whole_huge_pages(Extent& e, uint64_t need);
  Range choose(uint64_t need);
  bool give_back(uint64_t keep_bytes);
  Extent& add(std::unique_ptr<SlabRegion> region, std::unique_ptr<Extent> extent);
  bool unmap(std::unique_lock<std::mutex>& lock, Extent& e);
  bool discard(std::unique_lock<std::mutex>& lock, Extent& e, Range range);
  void split(Extent& e, size_t size, std::unique_ptr<Extent> rest);
};

// Adds a free extent. Called with the lock held, as all that follow.
void SlabExtents::State::add_free(Extent& e) {
  e.paged = e.region->paged_bytes(e.begin, e.size);
  e.free = true;
  sizes.insert(e);
  by_paged.insert(e);
  paged_bytes.fetch_add(e.paged, std::memory_order_relaxed);
}

void SlabExtents::State::remove_free(Extent& e) {
  e.free = false;
  sizes.erase(sizes.iterator_to(e));
  by_paged.erase(by_paged.iterator_to(e));
  paged_bytes.fetch_sub(e.paged, std::memory_order_relaxed);
}

Extent* SlabExtents::State::best_fit(size_t size) {
  auto paged = by_paged.lower_bound({size, nullptr});
  if (paged != by_paged.end()) return &*paged;
  auto any = sizes.lower_bound({size, nullptr});
  return any != sizes.end() ? &*any : nullptr;
}

// `e` is free from now on, one with its free neighbours: returns that one.
Extent& SlabExtents::State::release(Extent& e) {
  auto it = order.iterator_to(e);
  auto join = [this](auto left, auto right) {
    left->size += right->size;
    Extent* gone = &*right;
    order.erase(right);
    delete gone;
    return left;
  };
  if (auto next = std::next(it); next != order.end() && next->free && next->region == it->region) {
    remove_free(*next);
    it = join(it, next);
  }
  if (it != order.begin()) {
    auto before = std::prev(it);
    if (before->free && before->region == it->region) {
      remove_free(*before);
      it = join(before, it);
    }
  }
  add_free(*it);
  return *it;
}

// The last huge pages that lie in `e` as a whole and have `need` bytes of memory, or all of them.
SlabExtents::State::Range SlabExtents::State::whole_huge_pages(Extent& e, uint64_t need) {
  auto offset = static_cast<size_t>(e.begin - e.region->begin());
  uint8_t* first = e.region->begin() + round_up(offset, kHugePageBytes);
  uint8_t* end = e.region->begin() + (offset + e.size) / kHugePageBytes * kHugePageBytes;
  if (first >= end) return {};
  uint64_t found = 0;
  uint8_t* begin = end;
  while (begin > first && found < need) {
    begin -= kHugePageBytes;
    found += e.region->paged_bytes(begin, kHugePageBytes);
  }
  if (found == 0) return {};
  return {&e, begin, static_cast<size_t>(end - begin)};
}

// The range that goes back first: whole huge pages, else all of the extent that has most.
SlabExtents::State::Range SlabExtents::State::choose(uint64_t need) {
  size_t scanned = 0;
  for (auto it = by_paged.rbegin(); it != by_paged.rend() && it->paged > 0; ++it) {
    if (++scanned > kMaxTrimScan) break;
    if (is_region(*it) && it->paged <= need) return {&*it, it->begin, it->size};
    if (Range range = whole_huge_pages(*it, need); range.extent != nullptr) return range;
  }
  auto most = by_paged.rbegin();
  if (most == by_paged.rend() || most->paged == 0) return {};
  return {&*most, most->begin, most->size};
}

// Does a step of a trim; false if there is nothing to do, or the system refuses.
bool SlabExtents::State::give_back(uint64_t keep_bytes) {
  std::unique_lock lock(mutex);
  uint64_t have = paged_bytes.load(std::memory_order_relaxed);
  if (have <= keep_bytes) return false;
  Range range = choose(have - keep_bytes);
  if (range.extent == nullptr) return false;
  Extent& e = *range.extent;
  bool all = is_region(e) && range.size == e.size;
  remove_free(e);
  if (all) return unmap(lock, e);
  return discard(lock, e, range);
}

// Gives the memory of a range of `e` back and releases `e`, which is in no tree of free ones.
// False: refused.
bool SlabExtents::State::discard(std::unique_lock<std::mutex>& lock, Extent& e, Range range) {
  auto what = e.region->forget(range.begin, range.size);
  lock.unlock();  // nobody takes or joins `e` meanwhile
  bool gone = SlabRegion::discard(what);
  lock.lock();
  if (!gone) e.region->touch(range.begin, range.size);
  Extent& joined = release(e);
  if (!is_region(joined) || joined.paged > 0) return gone;
  remove_free(joined);
  return unmap(lock, joined) && gone;
}

// Adds a region as one extent, in no tree of free ones yet.
Extent& SlabExtents::State::add(std::unique_ptr<SlabRegion> region,
                                std::unique_ptr<Extent> extent) {
  extent->begin = region->begin();
  extent->size = region->size();
  extent->region = region.release();
  order.insert(*extent);
  mapped_bytes.fetch_add(extent->size, std::memory_order_relaxed);
  return *extent.release();
}

// `e` is all of its region, and in no tree of free ones.
bool SlabExtents::State::unmap(std::unique_lock<std::mutex>& lock, Extent& e) {
  order.erase(order.iterator_to(e));  // another region may be at this address at once
  mapped_bytes.fetch_sub(e.size, std::memory_order_relaxed);
  lock.unlock();
  if (e.region->unmap()) {
    delete e.region;
    delete &e;
    return true;
  }
  lock.lock();
  mapped_bytes.fetch_add(e.size, std::memory_order_relaxed);
  order.insert(e);
  add_free(e);
  return false;
}

SlabExtents::SlabExtents(Pages pages) : pages_(pages), state_(std::make_unique<State>()) {}

SlabExtents::~SlabExtents() { trim(0); }

// Cuts `e`, in no tree of free ones, to `size` bytes; `rest` becomes what follows, live.
void SlabExtents::State::split(Extent& e, size_t size, std::unique_ptr<Extent> rest) {
  rest->region = e.region;
  rest->begin = e.begin + size;
  rest->size = e.size - size;
  e.size = size;
  order.insert(*rest.release());
}

// A new region; as small as will do where there is no address space for a whole one.
std::unique_ptr<SlabRegion> SlabExtents::new_region(size_t size) {
  const size_t least = round_up(size, kHugePageBytes);
  if (least < kRegionBytes) {
    try {
      return std::make_unique<SlabRegion>(kRegionBytes, pages_);
    } catch (const std::bad_alloc&) {
      trim(0);
    }
  }
  return std::make_unique<SlabRegion>(least, pages_);
}

uint8_t* SlabExtents::take(size_t size) {
  if (size > SIZE_MAX / 2) throw std::bad_alloc();
  size = round_up(size, page_bytes());
  auto front = std::make_unique<Extent>(), rest = std::make_unique<Extent>();
  std::unique_lock lock(state_->mutex);
  Extent* from = state_->best_fit(size);
  Extent* before = nullptr;
  if (from != nullptr) {
    state_->remove_free(*from);
    size_t skipped =
        std::min(from->region->first_paged(from->begin, from->size), from->size - size);
    if (skipped > 0) {
      before = from;
      Extent* after = front.get();
      state_->split(*before, skipped, std::move(front));
      from = after;
    }
  } else {
    lock.unlock();
    auto extent = std::make_unique<Extent>();
    auto region = new_region(size);
    lock.lock();
    from = &state_->add(std::move(region), std::move(extent));
  }
  from->region->touch(from->begin, size);
  if (from->size > size) {
    Extent* after = rest.get();
    state_->split(*from, size, std::move(rest));
    state_->add_free(*after);
  }
  if (before != nullptr) state_->add_free(*before);
  uint8_t* begin = from->begin;
  lock.unlock();
  unpoison(begin, size);
  return begin;
}

void SlabExtents::give(uint8_t* begin, size_t size, bool keep) noexcept {
  size = round_up(size, page_bytes());
  poison(begin, size);
  std::unique_lock lock(state_->mutex);
  auto it = state_->order.find(begin);
  if (it == state_->order.end() || it->free || it->size != size) never_taken();
  if (keep) {
    state_->release(*it);
  } else {
    state_->discard(lock, *it, {&*it, begin, size});
  }
}

void SlabExtents::prepare() {
  auto extent = std::make_unique<Extent>();
  auto region = std::make_unique<SlabRegion>(kRegionBytes, pages_);
  region->populate();
  std::lock_guard lock(state_->mutex);
  state_->add_free(state_->add(std::move(region), std::move(extent)));
}

void SlabExtents::trim(uint64_t keep_bytes) noexcept {
  while (bytes() > keep_bytes && state_->give_back(keep_bytes)) {
  }
}

uint64_t SlabExtents::bytes() const { return state_->paged_bytes.load(std::memory_order_relaxed); }

uint64_t SlabExtents::mapped_bytes() const {
  return state_->mapped_bytes.load(std::memory_order_relaxed);
}

}  // namespace kv
