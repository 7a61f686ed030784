// SlabStore: freed buffers that wait for reuse, by exact size. First touch of fresh memory costs
// several times a copy into memory used before, and buffers of one model have few sizes.
//
// Uncharged and uninitialised: who may hold how much is the caller's business. Any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace kv {

inline constexpr size_t kSlabAlign = 64;       ///< a cache line
inline constexpr size_t kMinKeptBytes = 4096;  ///< smaller buffers are not kept

class SlabStore {
 public:
  SlabStore() = default;
  ~SlabStore() { trim(0); }
  SlabStore(const SlabStore&) = delete;  // owns what waits
  SlabStore& operator=(const SlabStore&) = delete;

  /// A buffer of `size` bytes, aligned to kSlabAlign: one that waits, or a fresh one.
  uint8_t* take(size_t size);
  /// Back from take(size): kept if all that wait are then at most `keep_bytes`, else freed.
  void give(uint8_t* slab, size_t size, uint64_t keep_bytes);
  /// Frees waiting buffers, largest first, until at most `keep_bytes` wait.
  void trim(uint64_t keep_bytes);
  /// Of all that wait.
  uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  bool keep(uint8_t* slab, size_t size);

  std::mutex mutex_;
  std::map<size_t, std::vector<uint8_t*>> free_;
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace kv
