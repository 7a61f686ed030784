// SlabExtents: memory of large buffers, carved in pages out of regions that ask for huge pages.
//
//   region  | live | free ......... | live | free .. |     extents, without gaps, in this order
//
// Two free neighbours are one extent, but for a moment while memory of one goes back. A buffer goes
// where free pages with memory are, best fit, else where any free pages are, else into a new
// region. Regions are kRegionBytes, or larger for one larger buffer, or just large enough where the
// address space has no more. Memory of free extents is counted by pages (slab_region.h), without
// memory that is being given back; trim() bounds it, whole huge pages first, and a region that is
// free and without memory is unmapped. Give and trim allocate nothing and can't fail.
//
// Uninitialised and uncharged; SlabStore alone calls this. Any thread; one short lock, and system
// calls over many pages outside of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kv {

inline constexpr size_t kRegionBytes = 32u << 20;
inline constexpr size_t kMaxTrimScan = 64;  ///< extents looked at for a whole huge page, per step

/// Pages of regions. Huge: touched and looked up several times faster; a page gets all its memory
/// at its first touch. Where a hypervisor takes free memory back, that touch can take milliseconds
/// (seen: 5 to 8), once. Small: only touched pages get memory, mostly memory in use just before.
enum class Pages : uint8_t { small, huge };

class SlabRegion;

class SlabExtents {
 public:
  explicit SlabExtents(Pages pages = Pages::huge);
  /// Precondition: all taken extents are back.
  ~SlabExtents();
  SlabExtents(const SlabExtents&) = delete;  // owns the regions
  SlabExtents& operator=(const SlabExtents&) = delete;

  /// `size` > 0 bytes, rounded up to pages. Throws std::bad_alloc, with nothing changed: large
  /// memory is asked for, and who gets none goes on (a job answers busy, make_ready leaves it).
  uint8_t* take(size_t size);
  /// Back from take(size). Its memory stays and counts in bytes(), or goes (`keep` false).
  void give(uint8_t* begin, size_t size, bool keep = true) noexcept;
  /// Gives memory of free extents back to the system until it is at most `keep_bytes`.
  void trim(uint64_t keep_bytes) noexcept;
  /// A region of kRegionBytes, all free, with memory: it counts in bytes() at once. Takes
  /// milliseconds, outside of the lock. Throws std::bad_alloc, as take().
  void prepare();
  /// Memory that free extents may have.
  uint64_t bytes() const;
  /// Address space of all regions.
  uint64_t mapped_bytes() const;

 private:
  const Pages pages_;
  struct State;
  std::unique_ptr<SlabRegion> new_region(size_t size);
  std::unique_ptr<State> state_;
};

}  // namespace kv
