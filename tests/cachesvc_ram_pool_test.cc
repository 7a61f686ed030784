// RamPool: what is charged comes back, what waits for reuse is counted, never over the budget.
#include "cachesvc/ram_pool.h"
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

TEST(RamPool, ChargesComeBackFromAnyReference) {
  auto pool = RamPool::create(1 << 20, 1 << 18);
  EXPECT_FALSE(pool->try_charge(ChargeKind::stored, (1 << 20) + 1));
  EXPECT_FALSE(pool->try_charge(ChargeKind::staging, (1 << 18) + 1)) << "the staging limit";
  auto charge = pool->try_charge(ChargeKind::staging, RamPool::slab_bytes(10'000));
  ASSERT_TRUE(charge);
  PoolBuffer buffer = pool->allocate(10'000, *charge);
  std::memset(buffer.data(), 7, buffer.size());
  Bytes all = std::move(buffer).freeze();
  EXPECT_EQ(pool->used_bytes(ChargeKind::staging), RamPool::slab_bytes(10'000));
  Bytes part = all.slice(5, 10);
  all = {};
  EXPECT_EQ(pool->used_bytes(), RamPool::slab_bytes(10'000)) << "a slice keeps the slab";
  int told = 0;
  pool->on_release([&] { ++told; });
  pool->notify_once();
  part = {};
  EXPECT_EQ(told, 1);
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_EQ(pool->recycled_bytes(), RamPool::slab_bytes(10'000));
  EXPECT_EQ(pool->peak_bytes(), RamPool::slab_bytes(10'000));
  auto rest = pool->try_charge(ChargeKind::stored, 1 << 20);
  ASSERT_TRUE(rest);
  auto some = rest->split(1 << 19);
  rest->release();
  EXPECT_EQ(told, 1) << "only when asked for";
  EXPECT_EQ(pool->used_bytes(), 1u << 19);
}

// A promotion reserves all it needs, then takes slab by slab: the memory of what it evicted is
// still there for the last of them.
TEST(RamPool, WhatIsReservedAndNoSlabYetLeavesFreedMemoryInPlace) {
  constexpr uint64_t kSlab = 2 << 20, kSlabs = 80, kFreed = 24;
  auto pool = RamPool::create(kSlabs * kSlab, kSlabs * kSlab);
  auto fill = [&](Charge& charge) {
    PoolBuffer buffer = pool->allocate(kSlab, charge);
    std::memset(buffer.data(), 7, kSlab);
    return std::move(buffer).freeze();
  };
  std::vector<Bytes> live;
  for (uint64_t i = 0; i < kSlabs; ++i) {
    auto charge = pool->try_charge(ChargeKind::stored, kSlab);
    live.push_back(fill(*charge));
  }
  live.resize(kSlabs - kFreed);
  auto reserved = pool->try_charge(ChargeKind::stored, kFreed * kSlab);
  ASSERT_TRUE(reserved.has_value());
  for (uint64_t left = kFreed; left > 0; --left) {
    EXPECT_GE(pool->recycled_bytes(), left * kSlab);
    EXPECT_LE(pool->backed_bytes() + pool->recycled_bytes(), pool->budget_bytes());
    live.push_back(fill(*reserved));
  }
  EXPECT_EQ(pool->backed_bytes(), pool->used_bytes());
  EXPECT_LE(pool->used_bytes() + pool->recycled_bytes(), pool->budget_bytes());
}

TEST(RamPool, OnceLittleIsInUseLittleWaitsForReuse) {
  constexpr uint64_t kSlab = 2 << 20, kSlabs = 80;
  auto pool = RamPool::create(kSlabs * kSlab, kSlabs * kSlab);
  std::vector<Bytes> live;
  for (uint64_t i = 0; i < kSlabs; ++i) {
    auto charge = pool->try_charge(ChargeKind::stored, kSlab);
    live.push_back(pool->allocate(kSlab, *charge).freeze());
  }
  live.clear();
  EXPECT_LE(pool->recycled_bytes(), pool->budget_bytes() / 8);
}

TEST(RamPool, MemoryIsMadeReadyWithinItsShareAndTheBudget) {
  constexpr uint64_t kBudget = 16 * kRegionBytes;
  auto pool = RamPool::create(kBudget, kBudget);
  EXPECT_FALSE(pool->lacks_ready(kRegionBytes - 1)) << "in whole steps only";
  pool->make_ready(kRegionBytes - 1);
  EXPECT_EQ(pool->recycled_bytes(), 0u);
  pool->make_ready(kRegionBytes);
  EXPECT_EQ(pool->recycled_bytes(), kRegionBytes);
  EXPECT_EQ(pool->used_bytes(), 0u) << "it waits, uncharged";
  pool->make_ready(kBudget);
  EXPECT_EQ(pool->recycled_bytes(), kBudget / 8);
  EXPECT_FALSE(pool->lacks_ready(kBudget));
  pool->trim();
  auto others = pool->try_charge(ChargeKind::reply, kBudget - 2 * kRegionBytes + 1);
  pool->make_ready(kBudget);
  EXPECT_EQ(pool->recycled_bytes(), kRegionBytes) << "others have the rest of the budget";
}

// What waits for reuse, free parts of huge pages too, has no charge, and comes out of what is free.
TEST(RamPool, WhatWaitsAndWhatIsChargedAreTogetherNeverOverTheBudget) {
  constexpr uint64_t kBudget = 12 << 20;
  auto pool = RamPool::create(kBudget, kBudget);
  std::mt19937 rng(4);
  std::vector<Bytes> live;
  uint64_t most_waiting = 0, waiting_when_full = 0;
  for (int step = 0; step < 2000; ++step) {
    size_t size = 1 + rng() % (rng() % 3 == 0 ? 2'000'000 : 200'000);
    if (auto charge = pool->try_charge(ChargeKind::stored, RamPool::slab_bytes(size))) {
      PoolBuffer buffer = pool->allocate(size, *charge);
      std::memset(buffer.data(), 7, size);
      live.push_back(std::move(buffer).freeze());
    } else {
      size_t i = rng() % live.size();
      live[i] = live.back();
      live.pop_back();
      waiting_when_full = std::max(waiting_when_full, pool->recycled_bytes());
    }
    most_waiting = std::max(most_waiting, pool->recycled_bytes());
    ASSERT_LE(pool->used_bytes() + pool->recycled_bytes(), kBudget) << "step " << step;
  }
  EXPECT_GT(most_waiting, 1u << 20);
  EXPECT_GT(waiting_when_full, 0u) << "what is freed at the budget is there for what comes next";
  live.clear();
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_LE(pool->recycled_bytes(), kBudget / 8);
  pool->trim();
  EXPECT_EQ(pool->recycled_bytes(), 0u);
}

// Retired segments that somebody keeps mapped are idle for good: they stop no other announcement.
TEST(RamPool, RetiredSegmentsLeaveRoomForOthers) {
  constexpr uint64_t kBudget = 64 << 20;  // an eighth of it is set aside: four segments of 2 MiB
  auto pool = RamPool::create(kBudget, kBudget, Backing::segments);
  SegmentStore& segments = *pool->segments();
  auto stored = [&](const std::string& ns) {
    auto charge = pool->try_charge(ChargeKind::stored, RamPool::slab_bytes(1 << 20));
    return pool->allocate(1 << 20, *charge, ns).freeze();
  };
  auto segment_of = [&](const std::string& ns, const Bytes& bytes) {
    return segments.place_of(ns, bytes.data())->segment;
  };
  std::vector<std::shared_ptr<const SegmentView>> mapped;
  while (mapped.size() < 8) {
    const Bytes bytes = stored("a");
    mapped.push_back(segments.announce(segment_of("a", bytes)));
    ASSERT_NE(mapped.back(), nullptr);
    ASSERT_NE(segments.retire_emptiest(), 0u);
  }
  EXPECT_GT(segments.retired_idle_bytes(), kBudget / 8);
  const Bytes other = stored("b");
  EXPECT_TRUE(pool->may_announce(segment_of("b", other)));
}

// The same with memory in segments, some of which are announced and so keep all of theirs.
TEST(RamPool, WithSegmentsTooNeverOverTheBudget) {
  constexpr uint64_t kBudget = 64 << 20;
  auto pool = RamPool::create(kBudget, kBudget, Backing::segments);
  SegmentStore& segments = *pool->segments();
  std::mt19937 rng(5);
  std::vector<std::pair<std::string, Bytes>> live;
  std::vector<std::shared_ptr<const SegmentView>> views;
  auto announce_one = [&] {
    const auto& [ns, bytes] = live[rng() % live.size()];
    const auto place = segments.place_of(ns, bytes.data());
    if (!place || place->announced || !pool->may_announce(place->segment)) return;
    auto missing = pool->try_charge(ChargeKind::promotion, segments.missing_bytes(place->segment));
    if (missing) views.push_back(segments.announce(place->segment));
  };
  size_t in_segments = 0;
  for (int step = 0; step < 3000; ++step) {
    const size_t size = 1 + rng() % (rng() % 3 == 0 ? 1'000'000 : 100'000);
    const std::string ns = rng() % 4 == 0 ? "b" : "a";
    auto charge = pool->try_charge(ChargeKind::stored, RamPool::slab_bytes(size));
    if (charge) {
      PoolBuffer buffer = pool->allocate(size, *charge, ns);
      std::memset(buffer.data(), 7, size);
      live.emplace_back(ns, std::move(buffer).freeze());
      in_segments += segments.place_of(ns, live.back().second.data()).has_value();
    } else {
      std::swap(live[rng() % live.size()], live.back());
      live.pop_back();
    }
    if (rng() % 20 == 0 && !live.empty()) announce_one();
    ASSERT_LE(pool->used_bytes() + pool->recycled_bytes(), kBudget) << "step " << step;
    ASSERT_LE(pool->used_bytes() + segments.fixed_idle_bytes(), kBudget) << "step " << step;
    ASSERT_LE(segments.announced_bytes(), kBudget / 2) << "step " << step;
  }
  EXPECT_GT(in_segments, 500u);
  EXPECT_GT(views.size(), 5u);
  EXPECT_EQ(pool->budget_bytes(), kBudget - std::max(kBudget / 8, segments.fixed_idle_bytes()));
  live.clear();
  EXPECT_EQ(pool->used_bytes(), 0u);
  views.clear();
  pool->trim();
  EXPECT_EQ(pool->recycled_bytes(), 0u);
  EXPECT_EQ(segments.segments(), 0u);
  EXPECT_EQ(pool->budget_bytes(), pool->most_bytes());
}

}  // namespace
}  // namespace kv
