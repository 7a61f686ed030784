// Promoter: what a start brings into RAM before anybody asks, and the memory that it makes ready.
#include <thread>

#include "storage/read_buffers.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

TEST(WarmStart, BringsTheMostRecentlyUsedBackBeforeAnybodyAsks) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  ModelSpec model = plain_model();
  std::mt19937 rng(3);
  auto old = random_tokens(rng, 160), recent = random_tokens(rng, 160);
  {
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, model);
    ASSERT_TRUE(b.store(recent, Durability::durable).ok());
    ASSERT_TRUE(b.store(old, Durability::durable).ok());
    ASSERT_EQ(b.fetch(plus_one(recent))->tokens, 160u);  // used last
  }
  // Blocks of 16 tokens x 512 bytes: room for the ten of one entry and a little more.
  options.warm_start_bytes = 10 * RamPool::slab_bytes(16 * 512) + 1000;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, model);
  for (int i = 0; i < 2000 && b.stat("warm_objects") < 10; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(b.stat("warm_objects"), 10u);
  EXPECT_EQ(b.fetch(plus_one(recent))->tier, Tier::ram);
  EXPECT_EQ(b.fetch(plus_one(old))->tier, Tier::ssd);
  EXPECT_EQ(b.fetch(plus_one(old))->tokens, 160u);
}

// Nothing where nothing can be promoted; as much again once promotions have used it.
TEST(WarmStart, MemoryIsReadyForPromotions) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.ram_budget_bytes = 16 * kRegionBytes;  // an eighth: two steps
  ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(4, 128)}}));
  auto exact = make_profile(model, 0, 64);
  std::mt19937 rng(5);
  auto tokens = random_tokens(rng, 3072);  // 16 KiB a token: 48 MiB
  auto ready = [](Bench& b, uint64_t least) {
    for (int i = 0; i < 2000 && b.stat("ram_recycled_bytes") < least; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return b.stat("ram_recycled_bytes");
  };
  {
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, model, exact);
    ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
    EXPECT_LT(b.stat("ram_recycled_bytes"), kRegionBytes);
  }
  {
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, model, exact);
    EXPECT_EQ(ready(b, 2 * kRegionBytes), 2 * kRegionBytes);
    uint64_t known = b.stat("ram_index_bytes") + b.stat("ram_model_bytes");
    known += b.stat("ram_session_bytes");
    known += (kMostReadBuffers - 1) * kReadBufferBytes;  // of the tier
    EXPECT_EQ(b.stat("ram_used_bytes"), known) << "nobody pays for it";
    ASSERT_EQ(b.fetch(plus_one(tokens))->tokens, 3072u);
    EXPECT_GE(ready(b, kRegionBytes), kRegionBytes) << "half a step was left";
  }
  options.ready_bytes = 0;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, model, exact);
  ASSERT_EQ(b.fetch(plus_one(tokens))->tokens, 3072u);
  EXPECT_LT(b.stat("ram_recycled_bytes"), kRegionBytes);
}

TEST(WarmStart, TakesNoMoreThanItsBytes) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  std::mt19937 rng(4);
  {
    auto cache = open_cache(options);
    auto b = Bench::open(*cache, plain_model());
    for (int i = 0; i < 8; ++i) {
      ASSERT_TRUE(b.store(random_tokens(rng, 64), Durability::durable).ok());
    }
  }
  options.warm_start_bytes = 4 * RamPool::slab_bytes(16 * 512) + 1000;
  auto cache = open_cache(options);
  auto b = Bench::open(*cache, plain_model());
  for (int i = 0; i < 2000 && b.stat("warm_objects") < 4; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(b.stat("promotions"), 4u) << "and none is under way";
  EXPECT_LE(b.stat("ram_stored_bytes"), options.warm_start_bytes);
}

}  // namespace
}  // namespace kv
