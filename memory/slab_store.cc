// The lists of small free buffers stand under one short mutex; allocation is outside of it.
#include "memory/slab_store.h"

#include <algorithm>
#include <boost/intrusive/set.hpp>
#include <new>

namespace kv {

// Small buffers that wait: a list for each size, linked through the buffers themselves.
class SlabStore::SmallLists {
 public:
  void push(uint8_t* slab, size_t size) {
    auto first = sizes_.find(size);
    if (first == sizes_.end()) {
      sizes_.insert(*new (slab) First(size));
    } else {
      first->more = new (slab) Link{first->more};
    }
  }
  /// Null: none of that size waits.
  uint8_t* pop(size_t size) {
    auto first = sizes_.find(size);
    return first == sizes_.end() ? nullptr : pop(first);
  }
  /// 0: none waits.
  size_t largest() const { return sizes_.empty() ? 0 : sizes_.rbegin()->size; }

 private:
  struct Link {
    Link* more;
  };
  // List head, in the first buffer of its size.
  struct First : boost::intrusive::set_base_hook<> {
    explicit First(size_t bytes) : size(bytes) {}
    const size_t size;
    Link* more = nullptr;
  };
  struct BySize {
    using type = size_t;
    size_t operator()(const First& first) const { return first.size; }
  };
  static_assert(sizeof(First) <= kMinKeptBytes);
  using Sizes = boost::intrusive::set<First, boost::intrusive::key_of_value<BySize>>;

  uint8_t* pop(Sizes::iterator first) {
    if (Link* next = first->more; next != nullptr) {
      first->more = next->more;
      return reinterpret_cast<uint8_t*>(next);
    }
    First* last = &*first;
    sizes_.erase(first);
    last->~First();
    return reinterpret_cast<uint8_t*>(last);
  }

  Sizes sizes_;
};

SlabStore::SlabStore(Pages pages) : extents_(pages), free_(std::make_unique<SmallLists>()) {}

SlabStore::~SlabStore() { trim(0); }

uint8_t* SlabStore::take(size_t size) {
  return size >= kMinExtentBytes ? extents_.take(size) : take_small(size);
}

uint8_t* SlabStore::take_small(size_t size) {
  {
    std::lock_guard lock(mutex_);
    if (uint8_t* slab = free_->pop(size)) {
      small_bytes_.fetch_sub(size, std::memory_order_relaxed);
      return slab;
    }
  }
  return static_cast<uint8_t*>(::operator new (size, std::align_val_t{kSlabAlign}));
}

void SlabStore::give(uint8_t* slab, size_t size, uint64_t keep_bytes) noexcept {
  if (size >= kMinExtentBytes) {
    bool keep = size <= keep_bytes;  // false: it goes back alone
    extents_.give(slab, size, keep);
    return trim(keep_bytes);
  }
  if (size >= kMinKeptBytes && bytes() + size <= keep_bytes) return keep_small(slab, size);
  ::operator delete (slab, std::align_val_t{kSlabAlign});
}

void SlabStore::keep_small(uint8_t* slab, size_t size) {
  std::lock_guard lock(mutex_);
  free_->push(slab, size);
  small_bytes_.fetch_add(size, std::memory_order_relaxed);
}

void SlabStore::trim(uint64_t keep_bytes) noexcept {
  if (bytes() <= keep_bytes) return;
  extents_.trim(keep_bytes - std::min(keep_bytes, small_bytes()));
  trim_small(keep_bytes - std::min(keep_bytes, extents_.bytes()));
}

void SlabStore::trim_small(uint64_t keep_bytes) {
  std::lock_guard lock(mutex_);
  while (small_bytes() > keep_bytes && free_->largest() > 0) {
    const size_t size = free_->largest();
    ::operator delete (free_->pop(size), std::align_val_t{kSlabAlign});
    small_bytes_.fetch_sub(size, std::memory_order_relaxed);
  }
}

}  // namespace kv
