// The promise about memory: a failed small allocation ends the core, and loses nothing that was
// acked. The cache's own threads fail, the test's only where it says so
// (tests/support/failing_new.h).
#include "cachesvc/tiered_cache.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/support/failing_new.h"

namespace kv {
namespace {

class NoMemory : public ::testing::Test {
 protected:
  NoMemory() {
    options_.on_event = [this](const CacheEvent& e) {
      if (e.kind == kEnd) ended_ = true;
    };
    options_.ssd_min_free_bytes = 0;
    options_.ram_budget_bytes = 32ull << 20;
  }
  ~NoMemory() override { FailingNew::disarm(); }

  // Opens a cache with one durable entry, has allocation `nth` fail while another is stored and
  // the first fetched, and looks at what is left. True if the core ended.
  bool ends_at(int64_t nth) {
    TempDir dir;
    options_.ssd_dir = dir.store();
    options_.drain_timeout = Milliseconds(0);  // as a kill
    ended_ = false;
    const Sequence kept = random_tokens(rng_, 100), other = random_tokens(rng_, 100);
    {
      auto cache = TieredCache::create(options_, "test");
      EXPECT_TRUE(cache.ok());
      auto b = Bench::open(**cache, plain_model());
      EXPECT_EQ(b.store(kept, Durability::durable)->level, Durability::durable);
      auto held = b.fetch(plus_one(kept));
      EXPECT_TRUE(held.ok());
      FailingNew::arm(nth, 0);
      for (int i = 0; i < 20 && FailingNew::failures() == 0; ++i) {
        (void)b.store(other, Durability::durable);
        (void)b.fetch(plus_one(kept), FetchForm::f32);
      }
      FailingNew::disarm();
      if (ended_) expect_unavailable(b);
      b.expect_serves(kept, *held);  // leases stay readable
    }
    auto again = TieredCache::create(options_, "test");
    EXPECT_TRUE(again.ok()) << again.status().to_string();
    auto b = Bench::open(**again, plain_model());
    auto hit = b.fetch(plus_one(kept));
    EXPECT_EQ(hit->tokens, 100u) << "allocation " << nth;
    b.expect_serves(kept, *hit);
    return ended_;
  }

  CacheOptions options_;
  std::atomic<bool> ended_{false};

 private:
  static constexpr EventKind kEnd = EventKind::no_memory;
  void expect_unavailable(Bench& b) {
    EXPECT_EQ(b.fetch(random_tokens(rng_, 20)).status().code(), StatusCode::unavailable);
    EXPECT_EQ(b.reserve(random_tokens(rng_, 20)).status().code(), StatusCode::unavailable);
    EXPECT_EQ(b.client.stats(soon()).status().code(), StatusCode::unavailable);
    EXPECT_EQ(b.client.erase(0, {}, soon()).status().code(), StatusCode::unavailable);
  }
  Unwatched unwatched_;
  std::mt19937 rng_{3};
};

TEST_F(NoMemory, ASmallAllocationThatFailsEndsTheCoreAndLosesNothing) {
  int ended = 0;
  for (int64_t nth : {1, 3, 8, 20, 33, 47, 61, 80, 111, 150, 201, 290, 404, 555}) {
    ended += ends_at(nth);
  }
  EXPECT_GE(ended, 5) << "the others were jobs', which answer busy";
}

TEST_F(NoMemory, ACallerWithoutMemoryIsToldAndTheCacheGoesOn) {
  TempDir dir;
  options_.ssd_dir = dir.store();
  auto cache = TieredCache::create(options_, "test");
  ASSERT_TRUE(cache.ok());
  Status told;
  FailingNew::arm(1, 0);
  {
    Unwatched watched(true);
    told = (*cache)->stats(soon()).status();
  }
  FailingNew::disarm();
  EXPECT_EQ(told.code(), StatusCode::unavailable);
  EXPECT_TRUE((*cache)->stats(soon()).ok());
  EXPECT_FALSE(ended_);
}

}  // namespace
}  // namespace kv
