// The lists of small free buffers stand under one short mutex; allocation is outside of it.
#include "memory/slab_store.h"

#include <algorithm>
#include <new>

namespace kv {

uint8_t* SlabStore::take(size_t size) {
  return size >= kMinExtentBytes ? extents_.take(size) : take_small(size);
}

uint8_t* SlabStore::take_small(size_t size) {
  {
    std::lock_guard lock(mutex_);
    auto it = free_.find(size);
    if (it != free_.end()) {
      uint8_t* slab = it->second.back();
      it->second.pop_back();
      if (it->second.empty()) free_.erase(it);
      small_bytes_.fetch_sub(size, std::memory_order_relaxed);
      return slab;
    }
  }
  return static_cast<uint8_t*>(::operator new (size, std::align_val_t{kSlabAlign}));
}

void SlabStore::give(uint8_t* slab, size_t size, uint64_t keep_bytes) noexcept {
  if (size >= kMinExtentBytes) {
    bool keep = size <= keep_bytes;  // else it goes alone
    extents_.give(slab, size, keep);
    return trim(keep_bytes);
  }
  if (size >= kMinKeptBytes && bytes() + size <= keep_bytes && keep_small(slab, size)) return;
  ::operator delete (slab, std::align_val_t{kSlabAlign});
}

// False without memory for the list.
bool SlabStore::keep_small(uint8_t* slab, size_t size) {
  std::lock_guard lock(mutex_);
  auto it = free_.end();
  try {
    it = free_.try_emplace(size).first;
    it->second.push_back(slab);
  } catch (const std::bad_alloc&) {
    if (it != free_.end() && it->second.empty()) free_.erase(it);
    return false;
  }
  small_bytes_.fetch_add(size, std::memory_order_relaxed);
  return true;
}

void SlabStore::trim(uint64_t keep_bytes) noexcept {
  if (bytes() <= keep_bytes) return;
  extents_.trim(keep_bytes - std::min(keep_bytes, small_bytes()));
  trim_small(keep_bytes - std::min(keep_bytes, extents_.bytes()));
}

void SlabStore::trim_small(uint64_t keep_bytes) {
  std::lock_guard lock(mutex_);
  while (small_bytes() > keep_bytes && !free_.empty()) {
    auto largest = std::prev(free_.end());
    ::operator delete (largest->second.back(), std::align_val_t{kSlabAlign});
    small_bytes_.fetch_sub(largest->first, std::memory_order_relaxed);
    largest->second.pop_back();
    if (largest->second.empty()) free_.erase(largest);
  }
}

}  // namespace kv
