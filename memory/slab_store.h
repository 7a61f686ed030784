// SlabStore: buffers, and freed memory that waits for reuse. First touch of fresh memory costs
// several times a copy into memory used before, and most of it in small pages.
//
// Buffers from kMinExtentBytes on are pages of regions (slab_extents.h), huge ones if asked for;
// any free part of them waits for reuse. Smaller ones come from operator new and wait by exact
// size; their lists lie in the waiting buffers, so that giving back takes no memory. Uncharged and
// uninitialised: limits are the caller's business. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "memory/slab_extents.h"

namespace kv {

inline constexpr size_t kSlabAlign = 64;              ///< a cache line
inline constexpr size_t kMinKeptBytes = 4096;         ///< smaller buffers are not kept
inline constexpr size_t kMinExtentBytes = 64u << 10;  ///< smaller ones come from operator new

class SlabStore {
 public:
  explicit SlabStore(Pages pages = Pages::huge);
  ~SlabStore();
  SlabStore(const SlabStore&) = delete;  // owns what waits
  SlabStore& operator=(const SlabStore&) = delete;

  /// A buffer of `size` bytes, aligned to kSlabAlign: one that waits, or a fresh one. Throws
  /// std::bad_alloc.
  uint8_t* take(size_t size);
  /// Back from take(size). At most `keep_bytes` wait then, or a small one is freed. Can't fail, and
  /// takes no memory: destructors call it.
  void give(uint8_t* slab, size_t size, uint64_t keep_bytes) noexcept;
  /// Has kRegionBytes more wait, of fresh memory, touched. Takes milliseconds. Throws
  /// std::bad_alloc.
  void prepare() { extents_.prepare(); }
  /// Gives waiting memory back to the system, large buffers' first, until at most `keep_bytes`
  /// wait. Takes milliseconds for hundreds of MiB.
  void trim(uint64_t keep_bytes) noexcept;
  /// Memory of all that wait, free parts of large buffers' pages included.
  uint64_t bytes() const { return small_bytes() + extents_.bytes(); }

 private:
  class SmallLists;
  uint64_t small_bytes() const { return small_bytes_.load(std::memory_order_relaxed); }
  uint8_t* take_small(size_t size);
  void keep_small(uint8_t* slab, size_t size);
  void trim_small(uint64_t keep_bytes);

  SlabExtents extents_;
  std::mutex mutex_;
  std::unique_ptr<SmallLists> free_;  // guarded by mutex_
  std::atomic<uint64_t> small_bytes_{0};
};

}  // namespace kv
