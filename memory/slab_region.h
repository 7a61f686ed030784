// SlabRegion: one mapping that asks for huge pages, and a bit for each page that may have memory.
//
// A page whose bit is clear has no memory. The first touch of a huge page without memory brings it
// whole, so touch() sets all its bits. Where memory goes back beside live bytes (forget), that huge
// page is small pages from then on, until all of it goes back in one. Where the system has no huge
// pages, some bits are set too many and nothing else changes. Of a huge page that went back in part
// the process holds the rest only, but the kernel may split it, and have that part for others, no
// sooner than memory is short.
//
// SlabExtents alone uses this. Bits (paged_bytes, touch, forget) under its lock, with the advice
// that forget() gives for at most two huge pages or one region; discard(), unmap() and the
// constructor outside. Under ASan the mapping is poisoned until taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "memory/slab_extents.h"

namespace kv {

inline constexpr size_t kHugePageBytes = 2u << 20;
/// Huge pages that this process has split by advice at most: each may be two more mappings of the
/// 65,530 that a process may have. Above the limit a region that would need more is small pages for
/// good.
inline constexpr int64_t kMaxSmallHugePages = 8192;

/// The system's page size: 4,096 on x86-64.
size_t page_bytes();
constexpr size_t round_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Marks under ASan that touching these bytes is a defect, or is none.
void poison(const uint8_t* begin, size_t size);
void unpoison(const uint8_t* begin, size_t size);

class SlabRegion {
 public:
  /// `size`: a multiple of kHugePageBytes. `max_small`: as kMaxSmallHugePages; for tests. Throws
  /// std::bad_alloc.
  SlabRegion(size_t size, Pages pages, int64_t max_small = kMaxSmallHugePages);
  ~SlabRegion() { (void)unmap(); }
  SlabRegion(const SlabRegion&) = delete;  // owns the mapping
  SlabRegion& operator=(const SlabRegion&) = delete;

  uint8_t* begin() const { return begin_; }
  size_t size() const { return size_; }
  /// False if the system refuses; the mapping is there then.
  bool unmap();

  /// Number of these bytes that may have memory. Ranges here are whole pages of this mapping.
  size_t paged_bytes(const uint8_t* begin, size_t size) const;
  /// Offset of the first byte of `begin` + [0, size) that may have memory; 0 if none has.
  size_t first_paged(const uint8_t* begin, size_t size) const;
  /// Notes the first touch of these bytes. Call it before.
  void touch(const uint8_t* begin, size_t size);
  /// Touches all of it. Nobody else may know the region yet: no lock. Takes milliseconds.
  void populate();

  /// Work that forget() leaves to discard().
  struct Discard {
    uint8_t* begin;
    size_t size;
    uint8_t* huge_begin;  ///< range to be huge pages again, if any
    size_t huge_size;
  };
  /// The memory of these bytes, none of them live, is about to go: clears their bits. Nobody may
  /// touch them until discard() has returned.
  Discard forget(uint8_t* begin, size_t size);
  /// False if the system refuses: the memory is still there.
  static bool discard(const Discard& what);

 private:
  size_t page_of(const uint8_t* at) const { return static_cast<size_t>(at - begin_) / page_; }
  size_t huge_of(const uint8_t* at) const {
    return static_cast<size_t>(at - begin_) / kHugePageBytes;
  }
  uint8_t* huge_begin(size_t huge) const { return begin_ + huge * kHugePageBytes; }
  bool comes_whole(size_t huge) const;
  void make_small(size_t huge);
  void make_all_small();

  const size_t page_;
  const size_t size_;
  const int64_t max_small_;
  uint8_t* begin_ = nullptr;
  enum class Kind : uint8_t { huge, advised_small, small };  // small: with all its region
  std::vector<Kind> kinds_;                                  // kind of each huge page
  std::vector<uint64_t> pages_;                              // a bit per page
};

}  // namespace kv
