// The mapping, the advice and the bits; none of the calls here depends on advice being taken.
#include "memory/slab_region.h"

#include <sys/mman.h>
#include <unistd.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

#include <algorithm>
#include <atomic>
#include <bit>
#include <new>

namespace kv {
namespace {

constexpr size_t kWordBits = 64;
std::atomic<int64_t> advised_small{0};  // the process's, like the limit

// Calls use(word, mask) for the words that hold the bits [first, last).
template <class Words, class Use>
void each_word(Words& words, size_t first, size_t last, Use use) {
  while (first < last) {
    size_t bit = first % kWordBits, count = std::min(kWordBits - bit, last - first);
    uint64_t mask = (count == kWordBits ? ~0ull : (1ull << count) - 1) << bit;
    use(words[first / kWordBits], mask);
    first += count;
  }
}

// An aligned mapping out of a larger one.
uint8_t* map_aligned(size_t size) {
  if (size > SIZE_MAX / 2) throw std::bad_alloc();
  size_t mapped = size + kHugePageBytes;
  void* map = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) throw std::bad_alloc();
  auto* begin = static_cast<uint8_t*>(map);
  size_t before = (kHugePageBytes - reinterpret_cast<uintptr_t>(begin)) % kHugePageBytes;
  uint8_t* data = begin + before;
  if (before > 0) ::munmap(begin, before);
  if (before < kHugePageBytes) ::munmap(data + size, kHugePageBytes - before);
  return data;
}

}  // namespace

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

#ifdef __SANITIZE_ADDRESS__
void poison(const uint8_t* begin, size_t size) { __asan_poison_memory_region(begin, size); }
void unpoison(const uint8_t* begin, size_t size) { __asan_unpoison_memory_region(begin, size); }
#else
void poison(const uint8_t*, size_t) {}
void unpoison(const uint8_t*, size_t) {}
#endif

SlabRegion::SlabRegion(size_t size, Pages pages, int64_t max_small)
    : page_(page_bytes()),
      size_(size),
      max_small_(max_small),
      kinds_(size / kHugePageBytes, Kind::huge),
      pages_((size / page_ + kWordBits - 1) / kWordBits) {
  begin_ = map_aligned(size);
  if (pages == Pages::small) {
    make_all_small();
  } else {
    (void)::madvise(begin_, size_, MADV_HUGEPAGE);  // small pages do too
  }
  poison(begin_, size_);
}

void SlabRegion::populate() {
  touch(begin_, size_);
  unpoison(begin_, size_);
  for (size_t at = 0; at < size_; at += page_) *static_cast<volatile uint8_t*>(begin_ + at) = 0;
  poison(begin_, size_);
}

bool SlabRegion::unmap() {
  if (begin_ == nullptr) return true;
  unpoison(begin_, size_);  // the addresses may be somebody else's next
  if (::munmap(begin_, size_) != 0) {
    poison(begin_, size_);
    return false;
  }
  advised_small.fetch_sub(std::count(kinds_.begin(), kinds_.end(), Kind::advised_small));
  begin_ = nullptr;
  return true;
}

size_t SlabRegion::paged_bytes(const uint8_t* begin, size_t size) const {
  size_t bits = 0;
  each_word(pages_, page_of(begin), page_of(begin + size), [&](uint64_t word, uint64_t mask) {
    bits += static_cast<size_t>(std::popcount(word & mask));
  });
  return bits * page_;
}

size_t SlabRegion::first_paged(const uint8_t* begin, size_t size) const {
  size_t first = page_of(begin), found = 0;
  bool any = false;
  each_word(pages_, first, page_of(begin + size), [&](const uint64_t& word, uint64_t mask) {
    if (any || (word & mask) == 0) return;
    any = true;
    auto bit = static_cast<size_t>(std::countr_zero(word & mask));
    found = static_cast<size_t>(&word - pages_.data()) * kWordBits + bit - first;
  });
  return found * page_;
}

// True if the next touch of this huge page brings all of it.
bool SlabRegion::comes_whole(size_t huge) const {
  return kinds_[huge] == Kind::huge && paged_bytes(huge_begin(huge), kHugePageBytes) == 0;
}

void SlabRegion::touch(const uint8_t* begin, size_t size) {
  size_t first = huge_of(begin), last = huge_of(begin + size - 1);
  const uint8_t* end = begin + size;
  if (comes_whole(last)) end = huge_begin(last) + kHugePageBytes;
  if (comes_whole(first)) begin = huge_begin(first);
  each_word(pages_, page_of(begin), page_of(end),
            [](uint64_t& word, uint64_t mask) { word |= mask; });
}

void SlabRegion::make_small(size_t huge) {
  if (kinds_[huge] != Kind::huge) return;
  if (advised_small.fetch_add(1) < max_small_ &&
      ::madvise(huge_begin(huge), kHugePageBytes, MADV_NOHUGEPAGE) == 0) {
    kinds_[huge] = Kind::advised_small;
    return;
  }
  advised_small.fetch_sub(1);
  make_all_small();
}

// Makes all pages small for good: one mapping again, so that the limit of mappings holds.
void SlabRegion::make_all_small() {
  (void)::madvise(begin_, size_, MADV_NOHUGEPAGE);
  advised_small.fetch_sub(std::count(kinds_.begin(), kinds_.end(), Kind::advised_small));
  std::fill(kinds_.begin(), kinds_.end(), Kind::small);
}

SlabRegion::Discard SlabRegion::forget(uint8_t* begin, size_t size) {
  uint8_t* end = begin + size;
  each_word(pages_, page_of(begin), page_of(end),
            [](uint64_t& word, uint64_t mask) { word &= ~mask; });
  size_t whole = huge_of(begin + kHugePageBytes - 1), whole_end = huge_of(end);
  if (begin != huge_begin(huge_of(begin))) make_small(huge_of(begin));
  if (end != huge_begin(whole_end)) make_small(whole_end);
  Discard out{begin, size, nullptr, 0};
  for (size_t huge = whole; huge < whole_end; ++huge) {
    if (kinds_[huge] != Kind::advised_small) continue;
    advised_small.fetch_sub(1);
    kinds_[huge] = Kind::huge;
    if (out.huge_begin == nullptr) out.huge_begin = huge_begin(huge);
    out.huge_size = static_cast<size_t>(huge_begin(huge + 1) - out.huge_begin);
  }
  return out;
}

bool SlabRegion::discard(const Discard& what) {
  bool gone = ::madvise(what.begin, what.size, MADV_DONTNEED) == 0;
  if (what.huge_size > 0) (void)::madvise(what.huge_begin, what.huge_size, MADV_HUGEPAGE);
  return gone;
}

}  // namespace kv
