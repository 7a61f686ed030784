// Segment: one sealed memfd that other processes may map read-only, cut into slots of whole pages.
//
//   | generation of each page's slot | slot | free | slot | free ........ |
//
// A slot begins at a page, and the generation of that page, a u64 at 8 times its number in the
// table that the segment begins with, is raised when the slot is given back: before anything new is
// written there. A reader of a slot reads its bytes, then the generation, and knows whether they
// were still the slot's. No other process can change size or bytes.
//
//   open ──seal_begun──> sealing ──seal_ended──> announced ──retire──> retired
//     ^────── refused ───────┘
//
// open: nobody else has seen it, free pages may go back to the system. A huge page in which nothing
// has memory yet gets all of it at its first slot, if what lies idle beside the slot may: small
// pages would have to be copied when the segment is sealed. From sealing on all pages have memory
// and keep it: a registered mapping (a GPU's) must never read old bytes. retired: no new slots.
// SegmentStore alone uses this, under its lock; back(), seal() and discard() outside.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace kv {

/// Slots begin at multiples of this, and each such place has a generation. PROTOCOL.md, "Pools".
inline constexpr size_t kSlotPageBytes = 4096;

/// A descriptor through which a segment can only be read, and what a reader has to know. While one
/// lives somebody may have the segment mapped.
class SegmentView {
 public:
  SegmentView(uint32_t id, uint64_t bytes, uint64_t page_bytes, int fd)
      : id_(id), bytes_(bytes), page_bytes_(page_bytes), fd_(fd) {}
  ~SegmentView();
  SegmentView(const SegmentView&) = delete;  // owns the descriptor
  SegmentView& operator=(const SegmentView&) = delete;
  uint32_t id() const { return id_; }
  uint64_t bytes() const { return bytes_; }
  /// Pages that the kernel holds it in: 2 MiB, or the system's small ones.
  uint64_t page_bytes() const { return page_bytes_; }
  int fd() const { return fd_; }

 private:
  const uint32_t id_;
  const uint64_t bytes_, page_bytes_;
  const int fd_;
};

class Segment {
 public:
  enum class State : uint8_t { open, sealing, announced, retired };

  /// `bytes`: a multiple of 2 MiB. Null: the system has no descriptor or address space for it.
  static std::unique_ptr<Segment> create(uint32_t id, std::string owner, size_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;  // owns the mapping
  Segment& operator=(const Segment&) = delete;

  uint32_t id() const { return id_; }
  const std::string& owner() const { return owner_; }
  size_t bytes() const { return bytes_; }
  uint8_t* begin() const { return begin_; }
  State state() const { return state_; }
  bool announced() const { return state_ == State::announced || state_ == State::retired; }
  /// Bytes of the table of generations.
  static size_t table_bytes(size_t bytes);
  size_t live_bytes() const { return live_pages_ * kSlotPageBytes; }
  /// Memory beside live slots; the table counts once it has memory.
  size_t idle_bytes() const { return (paged_pages_ - live_pages_) * kSlotPageBytes; }
  /// The table's part of that, which stays while the segment does.
  size_t idle_table_bytes() const;
  size_t missing_bytes() const { return bytes_ - paged_pages_ * kSlotPageBytes; }

  /// First fit of `bytes`, whole pages. Null: no place. Not of a retired one. Adds to `fresh` the
  /// huge pages (by their number) that get all their memory now, which leaves at most `spare_bytes`
  /// more idle: if there are any, back() is to give it before anything is written, then backed().
  uint8_t* take(size_t bytes, uint64_t spare_bytes, std::vector<size_t>& fresh);
  /// Outside of the lock; about a millisecond each. Leaves in `fresh` those for which the system
  /// has no huge page: they get small ones as they are written.
  void back(const uint8_t* slot, std::vector<size_t>& fresh);
  void backed(const std::vector<size_t>& without);
  void give(uint8_t* slot, size_t bytes);
  uint64_t generation(size_t offset) const;

  /// Free pages with memory, at most `most_bytes`, that go back to the system next: nobody takes
  /// them until discarded(). Open only; empty: there are none, or some get memory just now.
  struct Range {
    size_t first_page = 0, pages = 0;
  };
  Range idle_range(size_t most_bytes);
  bool discard(const Range& range);  ///< outside of the lock; false: some of it stayed
  void discarded(const Range& range, bool gone);
  bool discarding() const { return leaving_pages_ > 0; }

  void seal_begun();
  bool seal();  ///< gets all memory, huge pages if any, and the seals; takes milliseconds
  void seal_ended(bool sealed);
  void retire();
  /// Null: no descriptor.
  std::shared_ptr<const SegmentView> view();
  bool viewed() const { return !view_.expired(); }

  void check_invariants() const;

 private:
  Segment(uint32_t id, std::string owner, size_t bytes, int fd, uint8_t* begin);
  std::atomic<uint64_t>& generation_at(size_t page) const;
  size_t find_free(size_t pages) const;
  void take_whole(size_t first, size_t pages, uint64_t spare_bytes, std::vector<size_t>& fresh);
  bool make_huge(size_t huge_page, size_t known_page);

  const uint32_t id_;
  const std::string owner_;
  const size_t bytes_;
  const int fd_;
  uint8_t* const begin_;
  State state_ = State::open;
  bool huge_ = false;
  size_t live_pages_ = 0, paged_pages_ = 0, leaving_pages_ = 0;
  size_t backing_ = 0;           // takes whose huge pages get their memory
  size_t longest_free_;          // pages: at most so many are free in a row
  std::vector<uint64_t> taken_;  // a bit for each page: of a slot, the table, or on its way out
  std::vector<uint64_t> paged_;  // a bit for each page: has memory
  std::weak_ptr<const SegmentView> view_;
};

}  // namespace kv
