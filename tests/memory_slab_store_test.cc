// Slabs against a simple oracle: what is taken overlaps nothing, keeps its content and is aligned;
// what waits is counted, and is gone when it is said to be. Memory is what mincore says.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>

#include "memory/slab_region.h"
#include "memory/slab_store.h"

namespace kv {
namespace {

constexpr size_t kKiB = 1u << 10, kMiB = 1u << 20;

// Bytes of the 2 MiB from `begin` that have memory; none if nothing is mapped there.
size_t resident_in_huge_page(uintptr_t begin) {
  std::vector<unsigned char> pages(kHugePageBytes / page_bytes());
  if (::mincore(reinterpret_cast<void*>(begin), kHugePageBytes, pages.data()) != 0) return 0;
  auto present = [](unsigned char p) { return (p & 1) != 0; };
  return static_cast<size_t>(std::count_if(pages.begin(), pages.end(), present)) * page_bytes();
}
uintptr_t huge_page_of(const uint8_t* at) {
  return reinterpret_cast<uintptr_t>(at) / kHugePageBytes * kHugePageBytes;
}
bool huge_pages_by_advice() {
  std::string words;
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::getline(file, words);
  return !words.empty() && words.find("[never]") == std::string::npos;
}

// Marks every page of a slab with its number, or checks the marks.
void mark(uint8_t* slab, size_t size, uint32_t id) {
  for (size_t at = 0; at + sizeof(id) <= size; at += 4096) std::memcpy(slab + at, &id, sizeof(id));
  slab[size - 1] = static_cast<uint8_t>(id);
}
bool marked(const uint8_t* slab, size_t size, uint32_t id) {
  for (size_t at = 0; at + sizeof(id) <= size - 1; at += 4096) {
    if (std::memcmp(slab + at, &id, sizeof(id)) != 0) return false;
  }
  return slab[size - 1] == static_cast<uint8_t>(id);
}

// What a store should be: the live slabs, and everywhere that it ever had one.
class Oracle {
 public:
  Oracle(SlabStore& store, uint32_t seed) : store_(store), rng_(seed) {}

  size_t random_size() {
    uint32_t kind = rng_() % 100;
    if (kind < 10) return 5 + rng_() % 4096;
    if (kind < 25) return 4096 + rng_() % (60 * kKiB);
    if (kind < 60) return 64 * kKiB + rng_() % (448 * kKiB);
    if (kind < 98) return 512 * kKiB + rng_() % (4 * kMiB);
    return 30 * kMiB + rng_() % (10 * kMiB);
  }
  void take() {
    size_t size = random_size();
    uint8_t* slab = store_.take(size);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(slab) % kSlabAlign, 0u);
    auto after = live_.lower_bound(slab);
    if (after != live_.end()) {
      ASSERT_LE(slab + size, after->first);
    }
    if (after != live_.begin()) {
      auto before = std::prev(after);
      ASSERT_LE(before->first + before->second.size, slab);
    }
    live_[slab] = {size, ++last_id_};
    mark(slab, size, last_id_);
    if (size < kMinExtentBytes) return;
    live_bytes_ += round_up(size, page_bytes());
    for (uintptr_t at = huge_page_of(slab); at < reinterpret_cast<uintptr_t>(slab + size);
         at += kHugePageBytes) {
      seen_.insert(at);
    }
  }
  void give(uint64_t keep_bytes) {
    if (live_.empty()) return;
    auto it = std::next(live_.begin(), static_cast<ptrdiff_t>(rng_() % live_.size()));
    auto [size, id] = it->second;
    ASSERT_TRUE(marked(it->first, size, id)) << "slab " << id << " of " << size << " bytes";
    if (size >= kMinExtentBytes) live_bytes_ -= round_up(size, page_bytes());
    uint64_t before = store_.bytes();
    store_.give(it->first, size, keep_bytes);
    live_.erase(it);
    ASSERT_LE(store_.bytes(), size < kMinExtentBytes ? std::max(before, keep_bytes) : keep_bytes);
  }
  uint64_t resident_bytes() const {
    uint64_t sum = 0;
    for (uintptr_t at : seen_) sum += resident_in_huge_page(at);
    return sum;
  }
  size_t live() const { return live_.size(); }
  uint64_t live_bytes() const { return live_bytes_; }
  uint32_t random() { return static_cast<uint32_t>(rng_()); }

 private:
  struct Slab {
    size_t size;
    uint32_t id;
  };
  SlabStore& store_;
  std::mt19937 rng_;
  std::map<uint8_t*, Slab> live_;
  std::set<uintptr_t> seen_;
  uint64_t live_bytes_ = 0;  // of those in pages of regions
  uint32_t last_id_ = 0;
};

void random_steps(uint32_t seed, int steps) {
  SlabStore store;
  Oracle oracle(store, seed);
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    uint32_t kind = oracle.random() % 100;
    uint64_t keep = oracle.random() % 3 == 0 ? oracle.random() % (64 * kMiB) : 1ull << 40;
    if (kind < 50 && oracle.live_bytes() < 150 * kMiB) {
      ASSERT_NO_FATAL_FAILURE(oracle.take());
    } else if (kind < 97) {
      ASSERT_NO_FATAL_FAILURE(oracle.give(keep));
    } else {
      store.trim(keep);
      ASSERT_LE(store.bytes(), keep);
    }
    if (step % 8 == 0) {
      ASSERT_LE(oracle.resident_bytes(), oracle.live_bytes() + store.bytes());
    }
  }
  store.trim(0);
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_EQ(oracle.resident_bytes(), oracle.live_bytes()) << "beside live slabs";
  while (oracle.live() > 0) {
    ASSERT_NO_FATAL_FAILURE(oracle.give(oracle.random() % 2 * 8 * kMiB));
  }
  store.trim(0);
  EXPECT_EQ(oracle.resident_bytes(), 0u);
}

TEST(SlabStoreProperty, HoldsWhatIsLiveAndWhatItCounts) {
  uint32_t base = std::random_device()();
  for (uint32_t seed = base; seed < base + 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    random_steps(seed, 400);
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(SlabStoreProperty, ThreadsShareIt) {
  uint32_t base = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(base));
  constexpr uint64_t kKeepBytes = 24 * kMiB;
  SlabStore store;
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&store, seed = base + t] {
      std::mt19937 rng(seed);
      struct Slab {
        uint8_t* data;
        size_t size;
        uint32_t id;
      };
      std::vector<Slab> live;
      auto give = [&](size_t i, uint64_t keep) {
        ASSERT_TRUE(marked(live[i].data, live[i].size, live[i].id));
        store.give(live[i].data, live[i].size, keep);
        live[i] = live.back();
        live.pop_back();
      };
      for (uint32_t step = 0; step < 1000; ++step) {
        if (rng() % 2 == 0 && live.size() < 24) {
          size_t size = rng() % 8 == 0 ? 40'000 : 64 * kKiB + rng() % (3 * kMiB);
          live.push_back({store.take(size), size, seed * 10'000 + step});
          mark(live.back().data, size, live.back().id);
        } else if (!live.empty()) {
          ASSERT_NO_FATAL_FAILURE(give(rng() % live.size(), rng() % kKeepBytes));
        }
        if (rng() % 64 == 0) store.trim(0);
      }
      while (!live.empty()) ASSERT_NO_FATAL_FAILURE(give(0, kKeepBytes));
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_LE(store.bytes(), kKeepBytes);
  store.trim(0);
  EXPECT_EQ(store.bytes(), 0u);
}

TEST(SlabExtents, FreeNeighboursAreOneAndEmptyRegionsGo) {
  SlabExtents extents;
  uint8_t* parts[4];
  for (auto& part : parts) part = extents.take(kRegionBytes / 4);
  EXPECT_EQ(extents.mapped_bytes(), kRegionBytes);
  for (int i : {2, 0, 3, 1}) extents.give(parts[i], kRegionBytes / 4);
  EXPECT_EQ(extents.bytes(), kRegionBytes);
  uint8_t* all = extents.take(kRegionBytes);
  EXPECT_EQ(extents.mapped_bytes(), kRegionBytes) << "in the same place";
  EXPECT_EQ(extents.bytes(), 0u);
  uint8_t* larger = extents.take(kRegionBytes + 1);
  EXPECT_EQ(extents.mapped_bytes(), 2 * kRegionBytes + kHugePageBytes) << "one of its own";
  extents.give(larger, kRegionBytes + 1);
  extents.trim(0);
  EXPECT_EQ(extents.mapped_bytes(), kRegionBytes);
  extents.give(all, kRegionBytes);
  extents.trim(kRegionBytes - 1);
  EXPECT_LE(extents.bytes(), kRegionBytes - 1);
  EXPECT_EQ(extents.bytes(), kRegionBytes - kHugePageBytes) << "no more than has to go";
  extents.trim(0);
  EXPECT_EQ(extents.mapped_bytes(), 0u);
}

// First touch brings 2 MiB: what lies beside the slab waits from then on, and goes by trim.
TEST(SlabExtents, WhatAHugePageBringsIsCounted) {
  SlabExtents extents;
  uint8_t* slab = extents.take(kMinExtentBytes);
  std::memset(slab, 1, kMinExtentBytes);
  EXPECT_EQ(extents.bytes(), kHugePageBytes - kMinExtentBytes);
  if (huge_pages_by_advice()) {
    EXPECT_EQ(resident_in_huge_page(huge_page_of(slab)), kHugePageBytes);
  }
  extents.trim(0);
  EXPECT_EQ(extents.bytes(), 0u);
  EXPECT_EQ(resident_in_huge_page(huge_page_of(slab)), kMinExtentBytes);
  EXPECT_EQ(slab[0] + slab[kMinExtentBytes - 1], 2);
  extents.give(slab, kMinExtentBytes);
  EXPECT_EQ(extents.bytes(), kMinExtentBytes);
}

// As a pool at its budget has it: trimmed between take and first touch.
TEST(SlabExtents, ATrimBeforeTheFirstTouchHoldsToo) {
  SlabExtents extents;
  uint8_t* slab = extents.take(kMinExtentBytes);
  extents.trim(0);
  std::memset(slab, 1, kMinExtentBytes);
  EXPECT_EQ(resident_in_huge_page(huge_page_of(slab)), kMinExtentBytes);
  extents.give(slab, kMinExtentBytes);
  // Huge again once all of it was free without memory, and nothing is remembered.
  slab = extents.take(kHugePageBytes);
  uint8_t* next = extents.take(kMinExtentBytes);
  extents.give(slab, kHugePageBytes);
  extents.trim(0);
  slab = extents.take(kMinExtentBytes);
  EXPECT_EQ(extents.bytes(), kHugePageBytes - kMinExtentBytes);
  extents.give(slab, kMinExtentBytes);
  extents.give(next, kMinExtentBytes);
}

// As ATrimBeforeTheFirstTouchHoldsToo, past the limit of split huge pages.
TEST(SlabRegion, PastTheLimitAllOfItIsSmallPages) {
  for (int64_t limit : {0, 1}) {
    SlabRegion region(4 * kHugePageBytes, Pages::huge, limit);
    unpoison(region.begin(), region.size());
    for (int huge : {0, 1, 2}) {
      uint8_t* slab = region.begin() + static_cast<size_t>(huge) * kHugePageBytes;
      region.touch(slab, kMinExtentBytes);
      uint8_t* rest = slab + kMinExtentBytes;
      ASSERT_TRUE(SlabRegion::discard(region.forget(rest, kHugePageBytes - kMinExtentBytes)));
      std::memset(slab, 1, kMinExtentBytes);
      EXPECT_EQ(region.paged_bytes(slab, kHugePageBytes), kMinExtentBytes);
      EXPECT_EQ(resident_in_huge_page(huge_page_of(slab)), kMinExtentBytes) << huge << " " << limit;
    }
  }
}

TEST(SlabExtents, SmallPagesBringNothingBeside) {
  SlabExtents extents(Pages::small);
  uint8_t* slab = extents.take(kMinExtentBytes);
  std::memset(slab, 1, kMinExtentBytes);
  EXPECT_EQ(extents.bytes(), 0u);
  EXPECT_EQ(resident_in_huge_page(huge_page_of(slab)), kMinExtentBytes);
  extents.give(slab, kMinExtentBytes);
  EXPECT_EQ(extents.bytes(), kMinExtentBytes);
}

TEST(SlabExtents, WhatIsPreparedHasItsMemoryBeforeAnybodyTakesIt) {
  for (Pages pages : {Pages::small, Pages::huge}) {
    SlabExtents extents(pages);
    extents.prepare();
    EXPECT_EQ(extents.bytes(), kRegionBytes);
    EXPECT_EQ(extents.mapped_bytes(), kRegionBytes);
    uint8_t* slab = extents.take(kRegionBytes - kHugePageBytes);
    EXPECT_EQ(extents.bytes(), kHugePageBytes);
    EXPECT_EQ(extents.mapped_bytes(), kRegionBytes) << "nothing fresh";
    for (size_t at = 0; at < kRegionBytes; at += kHugePageBytes) {
      EXPECT_EQ(resident_in_huge_page(huge_page_of(slab + at)), kHugePageBytes);
    }
    extents.give(slab, kRegionBytes - kHugePageBytes);
    extents.trim(0);
    EXPECT_EQ(extents.mapped_bytes(), 0u);
  }
}

// Memory that the system keeps is still counted, and a trim ends.
TEST(SlabExtents, ATrimThatTheSystemRefusesEnds) {
  SlabExtents extents;
  uint8_t* locked = extents.take(kHugePageBytes);
  uint8_t* live = extents.take(kHugePageBytes);
  std::memset(locked, 1, kHugePageBytes);
  // By number: sanitizers make mlock() do nothing.
  if (::syscall(SYS_mlock, locked, kHugePageBytes) != 0) {
    GTEST_SKIP() << "mlock: " << std::strerror(errno);
  }
  extents.give(locked, kHugePageBytes);
  extents.trim(0);
  EXPECT_EQ(extents.bytes(), kHugePageBytes);
  ASSERT_EQ(::syscall(SYS_munlock, locked, kHugePageBytes), 0);
  extents.trim(0);
  EXPECT_EQ(extents.bytes(), 0u);
  extents.give(live, kHugePageBytes);
}

uint64_t address_space_bytes() {
  uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * page_bytes();
}

// In a process of its own: exits 0 if all holds.
void run_out_of_address_space() {
  SlabStore store;
  std::vector<uint8_t*> slabs;
  slabs.reserve(1000);
  constexpr size_t kBytes = 3 * kMiB;
  rlimit limit{};
  ::getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = address_space_bytes() + 3 * kRegionBytes;
  if (::setrlimit(RLIMIT_AS, &limit) != 0) ::_exit(1);
  size_t first = 0;
  for (int round = 0; round < 3; ++round) {
    try {
      while (slabs.size() < slabs.capacity()) slabs.push_back(store.take(kBytes));
      ::_exit(2);  // there was no end
    } catch (const std::bad_alloc&) {
    }
    if (slabs.size() < 2 * (kRegionBytes / kBytes)) ::_exit(3);
    if (round == 0) first = slabs.size();
    if (slabs.size() != first) ::_exit(4);  // something was lost
    for (uint8_t* slab : slabs) std::memset(slab, 1, kBytes);
    for (uint8_t* slab : slabs) store.give(slab, kBytes, round * kRegionBytes);
    slabs.clear();
    store.trim(0);
    if (store.bytes() != 0) ::_exit(5);
  }
  ::_exit(0);
}

TEST(SlabStore, WithoutAddressSpaceThrowsAndLosesNothing) {
  EXPECT_EXIT(run_out_of_address_space(), ::testing::ExitedWithCode(0), "");
  EXPECT_THROW(SlabStore().take(SIZE_MAX - 5), std::bad_alloc);
}

#ifdef __SANITIZE_ADDRESS__
TEST(SlabStoreDeathTest, TouchingWhatWasGivenBackIsFound) {
  SlabStore store;
  constexpr size_t kBytes = 100 * kKiB;  // rounded up to pages
  uint8_t* slab = store.take(kBytes);
  uint8_t* next = store.take(kBytes);
  slab[kBytes - 1] = 1;
  store.give(slab, kBytes, 1 << 30);
  next[0] = 1;
  EXPECT_DEATH(slab[kBytes - 1] = 2, "use-after-poison");
  EXPECT_DEATH(next[kBytes + kKiB * 4] = 2, "use-after-poison");
  store.give(next, kBytes, 0);
}
#endif

TEST(SlabStoreDeathTest, ASecondGiveIsADefect) {
  EXPECT_DEATH(
      {
        SlabStore store;
        uint8_t* slab = store.take(kMinExtentBytes);
        store.give(slab, kMinExtentBytes, 1 << 30);
        store.give(slab, kMinExtentBytes, 1 << 30);
      },
      "not taken");
}

}  // namespace
}  // namespace kv
