// Slabs without memory: a take that throws changes nothing, and giving back needs none, as it is
// what destructors do. Address space that ends: memory_slab_store_test.cc.
#include <gtest/gtest.h>

#include <vector>

#include "memory/slab_store.h"
#include "tests/support/failing_new.h"

namespace kv {
namespace {

TEST(SlabStoreMemory, ATakeThatThrowsChangesNothingAndGivingBackNeedsNone) {
  FailingNew::watched = false;
  SlabStore store;
  struct Slab {
    uint8_t* data;
    size_t size;
  };
  std::vector<Slab> slabs;
  int thrown = 0;
  for (size_t size : {5'000u, 300'000u, 5'000u, 60'000u, 300'000u, 60'000u, 300'000u}) {
    uint64_t waiting = store.bytes();
    uint8_t* slab = nullptr;
    for (int64_t nth = 1; slab == nullptr; ++nth) {
      FailingNew::arm(nth, 0);
      Unwatched watched(true);
      try {
        slab = store.take(size);
      } catch (const std::bad_alloc&) {
        ++thrown;
        ASSERT_EQ(store.bytes(), waiting);
      }
      FailingNew::disarm();
    }
    slabs.push_back({slab, size});
    if (slabs.size() == 2) store.trim(0);  // later pages come from where the rest has none
  }
  EXPECT_GE(thrown, static_cast<int>(slabs.size()));
  FailingNew::arm(1, INT64_MAX / 2);
  {
    Unwatched watched(true);
    for (size_t first : {0, 1}) {  // with others between them: each leaves a hole
      for (size_t i = first; i < slabs.size(); i += 2) {
        store.give(slabs[i].data, slabs[i].size, kRegionBytes);
      }
    }
    store.trim(0);
  }
  FailingNew::disarm();
  EXPECT_EQ(FailingNew::failures(), 0);
  EXPECT_EQ(store.bytes(), 0u);
  FailingNew::watched = true;
}

}  // namespace
}  // namespace kv
