// Recency: what hits write (nothing), and the order of use over a restart.
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

uint64_t written(Bench& b) {
  return b.stat("ssd_written_bytes") + b.stat("ssd_catalog_written_bytes");
}

TEST(Recency, HitsInRamWriteNothing) {
  TempDir dir;
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model(1));
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 64 * 16);
  ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
  client.run();
  uint64_t before = written(b);
  for (int i = 0; i < 1'000; ++i) ASSERT_EQ(b.fetch(plus_one(tokens))->tokens, tokens.size());
  client.run();
  EXPECT_EQ(written(b), before);
}

TEST(Recency, WhatLeavesRamIsToldAFewTimesAMinute) {
  TempDir dir;
  CacheOptions o = small_options(dir.store());
  o.ram_budget_bytes = 1u << 20;
  Stepped client(o);
  auto b = Bench::open(client, plain_model(8));
  std::mt19937 rng(4);
  std::vector<Sequence> entries;
  for (int i = 0; i < 60; ++i) {
    entries.push_back(random_tokens(rng, 64));
    ASSERT_TRUE(b.store(entries.back(), Durability::spilled).ok());
  }
  client.run();
  ASSERT_GT(b.stat("ram_evicted_clean"), 0u);
  uint64_t before = written(b), promotions = b.stat("promotions");
  for (int round = 0; round < 5; ++round) {
    for (const auto& e : entries) ASSERT_TRUE(b.fetch(plus_one(e)).ok());
  }
  ASSERT_GT(b.stat("promotions"), promotions + 100) << "each one makes others leave";
  ASSERT_TRUE(b.store(random_tokens(rng, 3), Durability::spilled).ok());  // rows go with a put
  EXPECT_LE(written(b) - before, (64u << 10) + (64u << 10)) << "the rows, and the put's own";
}

TEST(Recency, AnOrderlyEndKeepsTheOrder) {
  TempDir dir;
  CacheOptions o = small_options(dir.store());
  std::mt19937 rng(5);
  auto used = random_tokens(rng, 3);
  std::vector<Sequence> others;
  {
    Stepped client(o);
    auto b = Bench::open(client, plain_model(1));
    ASSERT_TRUE(b.store(used, Durability::spilled).ok());
    for (int i = 0; i < 100; ++i) {
      others.push_back(random_tokens(rng, 3));
      ASSERT_TRUE(b.store(others.back(), Durability::spilled).ok());
    }
    ASSERT_EQ(b.fetch(plus_one(used))->tokens, 3u);
    ASSERT_TRUE(client.call<Status>([&](auto done) { client.core->drain(soon(), done); }).ok());
  }
  o.ram_budget_bytes = 2u << 20;
  o.index_fraction = 0.01;  // room for a quarter of them
  Stepped client(o);
  auto b = Bench::open(client, plain_model(1));
  EXPECT_EQ(b.fetch(plus_one(used))->tokens, 3u);
  EXPECT_EQ(b.fetch(plus_one(others.front()))->tokens, 0u);
}

}  // namespace
}  // namespace kv
