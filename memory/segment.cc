// Bitmaps of pages; a search looks at each word once.
#include "memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "memory/slab_region.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

namespace kv {
namespace {

constexpr size_t kBits = 64;
constexpr size_t kPagesPerHuge = kHugePageBytes / kSlotPageBytes;

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "segment: %s\n", what);
  std::abort();
}

bool test(const std::vector<uint64_t>& bits, size_t i) {
  return (bits[i / kBits] >> (i % kBits) & 1) != 0;
}

// Sets or clears [first, first + count); returns how many changed.
size_t assign(std::vector<uint64_t>& bits, size_t first, size_t count, bool value) {
  size_t changed = 0;
  while (count > 0) {
    const size_t bit = first % kBits, step = std::min(kBits - bit, count);
    const uint64_t mask = (step == kBits ? ~0ull : (1ull << step) - 1) << bit;
    uint64_t& word = bits[first / kBits];
    changed += static_cast<size_t>(std::popcount((value ? ~word : word) & mask));
    word = value ? word | mask : word & ~mask;
    first += step;
    count -= step;
  }
  return changed;
}

// True if one of [first, first + count) is set; both are multiples of kBits.
bool any(const std::vector<uint64_t>& bits, size_t first, size_t count) {
  auto begin = bits.begin() + static_cast<ptrdiff_t>(first / kBits);
  return std::any_of(begin, begin + static_cast<ptrdiff_t>(count / kBits),
                     [](uint64_t word) { return word != 0; });
}

// Memory of at most a huge page's bytes from `begin` on, asked once.
class Residency {
 public:
  Residency(uint8_t* begin, size_t bytes) : count_((bytes + page_bytes() - 1) / page_bytes()) {
    check(::mincore(begin, bytes, pages_.data()) == 0, "a mapping of ours is none");
  }
  bool at(size_t offset) const { return (pages_[offset / page_bytes()] & 1) != 0; }
  bool any() const {
    return std::any_of(pages_.begin(), pages_.begin() + static_cast<ptrdiff_t>(count_),
                       [](unsigned char page) { return (page & 1) != 0; });
  }

 private:
  const size_t count_;
  std::array<unsigned char, kPagesPerHuge> pages_;
};

int make_memfd(size_t bytes) {
  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  int fd = ::memfd_create("cachesvc-segment", flags | MFD_NOEXEC_SEAL);
  if (fd < 0) fd = ::memfd_create("cachesvc-segment", flags);  // a kernel before 6.3
  if (fd >= 0 && ::ftruncate(fd, static_cast<off_t>(bytes)) != 0) {
    ::close(fd);
    return -1;
  }
  return fd;
}

// Maps at a multiple of 2 MiB, so that huge pages fit both sides.
uint8_t* map_shared(int fd, size_t bytes) {
  const size_t room = bytes + kHugePageBytes;
  void* reserved = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (reserved == MAP_FAILED) return nullptr;
  auto* begin = static_cast<uint8_t*>(reserved);
  uint8_t* data = begin + (kHugePageBytes - reinterpret_cast<uintptr_t>(begin) % kHugePageBytes) %
                              kHugePageBytes;
  if (data > begin) ::munmap(begin, static_cast<size_t>(data - begin));
  if (data + bytes < begin + room) {
    ::munmap(data + bytes, static_cast<size_t>(begin + room - data) - bytes);
  }
  void* map = ::mmap(data, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (map != MAP_FAILED) return data;
  ::munmap(data, bytes);
  return nullptr;
}

}  // namespace

SegmentView::~SegmentView() { ::close(fd_); }

std::unique_ptr<Segment> Segment::create(uint32_t id, std::string owner, size_t bytes) {
  const int fd = make_memfd(bytes);
  if (fd < 0) return nullptr;
  uint8_t* begin = map_shared(fd, bytes);
  if (begin == nullptr) {
    ::close(fd);
    return nullptr;
  }
  return std::unique_ptr<Segment>(new Segment(id, std::move(owner), bytes, fd, begin));
}

Segment::Segment(uint32_t id, std::string owner, size_t bytes, int fd, uint8_t* begin)
    : id_(id),
      owner_(std::move(owner)),
      bytes_(bytes),
      fd_(fd),
      begin_(begin),
      longest_free_(bytes / kSlotPageBytes),
      taken_((bytes / kSlotPageBytes + kBits - 1) / kBits),
      paged_(taken_.size()) {
  const size_t table = table_bytes(bytes);
  assign(taken_, 0, table / kSlotPageBytes, true);
  poison(begin_ + table, bytes_ - table);
}

Segment::~Segment() {
  unpoison(begin_, bytes_);  // the addresses may be somebody else's next
  ::munmap(begin_, bytes_);
  ::close(fd_);
}

size_t Segment::table_bytes(size_t bytes) {
  return round_up(bytes / kSlotPageBytes * sizeof(uint64_t), kSlotPageBytes);
}

std::atomic<uint64_t>& Segment::generation_at(size_t page) const {
  static_assert(sizeof(std::atomic<uint64_t>) == sizeof(uint64_t));
  return *reinterpret_cast<std::atomic<uint64_t>*>(begin_ + page * sizeof(uint64_t));
}

uint64_t Segment::generation(size_t offset) const {
  // Generations are 0 before the announcement: the table has no memory.
  if (state_ == State::open) return 0;
  return generation_at(offset / kSlotPageBytes).load(std::memory_order_relaxed);
}

// The first page of the first `pages` in a row that are free; past the end if there are none.
size_t Segment::find_free(size_t pages) const {
  const size_t end = bytes_ / kSlotPageBytes;
  size_t run = 0;
  for (size_t at = 0; at < end;) {
    const size_t bit = at % kBits, in_word = std::min(kBits - bit, end - at);
    const uint64_t word = taken_[at / kBits] >> bit;
    if ((word & 1) != 0) {
      run = 0;
      at += std::min(in_word, static_cast<size_t>(std::countr_one(word)));
      continue;
    }
    const size_t free =
        word == 0 ? in_word : std::min(in_word, static_cast<size_t>(std::countr_zero(word)));
    run += free;
    at += free;
    if (run >= pages) return at - run;
  }
  return end;
}

size_t Segment::idle_table_bytes() const { return test(paged_, 0) ? table_bytes(bytes_) : 0; }

uint8_t* Segment::take(size_t bytes, uint64_t spare_bytes, std::vector<size_t>& fresh) {
  const size_t pages = (bytes + kSlotPageBytes - 1) / kSlotPageBytes;
  if (state_ == State::retired || pages > longest_free_) return nullptr;
  const size_t first = find_free(pages);
  if (first == bytes_ / kSlotPageBytes) {
    longest_free_ = pages - 1;
    return nullptr;
  }
  take_whole(first, pages, spare_bytes, fresh);
  if (!fresh.empty()) ++backing_;
  assign(taken_, first, pages, true);
  paged_pages_ += assign(paged_, first, pages, true);
  live_pages_ += pages;
  uint8_t* slot = begin_ + first * kSlotPageBytes;
  unpoison(slot, pages * kSlotPageBytes);
  return slot;
}

// The huge pages of a new slot in which nothing has memory, as far as what it leaves idle in them
// is spared.
void Segment::take_whole(size_t first, size_t pages, uint64_t spare_bytes,
                         std::vector<size_t>& fresh) {
  for (size_t huge = first / kPagesPerHuge; huge * kPagesPerHuge < first + pages; ++huge) {
    const size_t begin = huge * kPagesPerHuge, end = begin + kPagesPerHuge;
    const size_t own = std::min(end, first + pages) - std::max(begin, first);
    const uint64_t idle_bytes = (kPagesPerHuge - own) * kSlotPageBytes;
    if (idle_bytes > spare_bytes || any(paged_, begin, kPagesPerHuge)) continue;
    spare_bytes -= idle_bytes;
    paged_pages_ += assign(paged_, begin, kPagesPerHuge, true);
    fresh.push_back(huge);
  }
}

// Collapses a huge page: the system needs one small page with memory for that, `known_page`, which
// gets it.
bool Segment::make_huge(size_t huge_page, size_t known_page) {
  if (::fallocate(fd_, 0, static_cast<off_t>(known_page * kSlotPageBytes), kSlotPageBytes) != 0) {
    return false;
  }
  return ::madvise(begin_ + huge_page * kHugePageBytes, kHugePageBytes, MADV_COLLAPSE) == 0;
}

void Segment::back(const uint8_t* slot, std::vector<size_t>& fresh) {
  const size_t first = static_cast<size_t>(slot - begin_) / kSlotPageBytes;
  std::erase_if(
      fresh, [&](size_t huge) { return make_huge(huge, std::max(first, huge * kPagesPerHuge)); });
}

// Pages beside slots that got no memory after all count no longer.
void Segment::backed(const std::vector<size_t>& without) {
  check(backing_ > 0, "memory was given that nobody waits for");
  --backing_;
  for (const size_t huge : without) {
    const Residency memory(begin_ + huge * kHugePageBytes, kHugePageBytes);
    for (size_t i = 0; i < kPagesPerHuge; ++i) {
      const size_t page = huge * kPagesPerHuge + i;
      if (test(taken_, page) || memory.at(i * kSlotPageBytes)) continue;
      paged_pages_ -= assign(paged_, page, 1, false);
    }
  }
}

void Segment::give(uint8_t* slot, size_t bytes) {
  const auto offset = static_cast<size_t>(slot - begin_);
  const size_t first = offset / kSlotPageBytes;
  const size_t pages = (bytes + kSlotPageBytes - 1) / kSlotPageBytes;
  if (state_ != State::open) {
    generation_at(first).fetch_add(1, std::memory_order_relaxed);
    // The raise is visible before the first byte of the next writer there.
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  poison(slot, pages * kSlotPageBytes);
  check(assign(taken_, first, pages, false) == pages, "a slot is given back that was not taken");
  live_pages_ -= pages;
  longest_free_ = bytes_ / kSlotPageBytes;
}

Segment::Range Segment::idle_range(size_t most_bytes) {
  // Huge pages that get their memory just now would get that of discarded pages again.
  if (state_ != State::open || backing_ > 0 || idle_bytes() == 0) return {};
  const size_t end = bytes_ / kSlotPageBytes;
  const size_t most = std::max<size_t>(1, most_bytes / kSlotPageBytes);
  Range range;
  for (size_t at = end; at > 0 && range.pages < most; --at) {  // high ones first: low ones fill
    const bool idle = !test(taken_, at - 1) && test(paged_, at - 1);
    if (idle) {
      range.first_page = at - 1;
      ++range.pages;
    } else if (range.pages > 0) {
      break;
    }
  }
  leaving_pages_ += assign(taken_, range.first_page, range.pages, true);
  return range;
}

// A huge page that is being faulted in is not taken apart: its pages are cleared, and stay.
bool Segment::discard(const Range& range) {
  uint8_t* begin = begin_ + range.first_page * kSlotPageBytes;
  const size_t bytes = range.pages * kSlotPageBytes;
  if (::madvise(begin, bytes, MADV_REMOVE) != 0) return false;
  for (size_t at = 0; at < bytes; at += kHugePageBytes) {
    if (Residency(begin + at, std::min(kHugePageBytes, bytes - at)).any()) return false;
  }
  return true;
}

void Segment::discarded(const Range& range, bool gone) {
  leaving_pages_ -= assign(taken_, range.first_page, range.pages, false);
  if (gone) paged_pages_ -= assign(paged_, range.first_page, range.pages, false);
  longest_free_ = bytes_ / kSlotPageBytes;
}

void Segment::seal_begun() {
  check(state_ == State::open, "sealed twice");
  state_ = State::sealing;
  paged_pages_ += assign(paged_, 0, bytes_ / kSlotPageBytes, true);
}

// Seals with huge pages as far as the kernel has them, else with small ones.
bool Segment::seal() {
  bool huge = true;
  for (size_t page = 0; huge && page < bytes_ / kHugePageBytes; ++page) {
    huge = make_huge(page, page * kPagesPerHuge);
  }
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(bytes_)) != 0) return false;
  huge_ = huge;
  return ::fcntl(fd_, F_ADD_SEALS,
                 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0;
}

void Segment::seal_ended(bool sealed) {
  check(state_ == State::sealing, "a seal ends that has not begun");
  state_ = sealed ? State::announced : State::open;
}

void Segment::retire() {
  check(state_ == State::announced, "retired before it was announced");
  state_ = State::retired;
}

std::shared_ptr<const SegmentView> Segment::view() {
  if (auto known = view_.lock()) return known;
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/self/fd/%d", fd_);
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return nullptr;
  auto view =
      std::make_shared<const SegmentView>(id_, bytes_, huge_ ? kHugePageBytes : page_bytes(), fd);
  view_ = view;
  return view;
}

void Segment::check_invariants() const {
  size_t live = 0, paged = 0;
  const size_t table = table_bytes(bytes_) / kSlotPageBytes;
  for (size_t page = 0; page < bytes_ / kSlotPageBytes; ++page) {
    live += test(taken_, page) && page >= table;
    paged += test(paged_, page);
    check(test(taken_, page) || page >= table, "the table is free");
    check(page >= table || test(paged_, page) == test(paged_, 0), "half a table has memory");
  }
  check(live == live_pages_ + leaving_pages_, "pages of slots are not as counted");
  check(paged == paged_pages_, "pages with memory are not as counted");
  check(!announced() || paged == bytes_ / kSlotPageBytes, "announced without all its memory");
}

}  // namespace kv
