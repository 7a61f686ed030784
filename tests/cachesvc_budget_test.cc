// The write budget: what may be written in a day and a second, what is written first when that is
// not enough, and that nothing but spills waits for it.
#include <deque>

#include "cachesvc/write_budget.h"
#include "tests/cachesvc_stepped.h"

namespace kv {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

// Five simulated days: somebody wants to write in most minutes, more than the budget has.
TEST(WriteBudget, NoDayExceedsItsLimitByMoreThanABatchAndNoneIsWasted) {
  for (uint64_t seed : {1, 2, 3}) {
    std::mt19937_64 rng(seed);
    constexpr uint64_t kDay = 1'000'000, kBatch = 5'000;
    WriteBudget budget(0, kDay);
    WriteBudget::Time start{hours(1000 + rng() % 100) + seconds(rng() % 3600)}, now = start;
    std::deque<std::pair<WriteBudget::Time, uint64_t>> last_day;
    uint64_t sum = 0, total = 0;
    while (now < start + hours(120)) {
      now += seconds(rng() % 120);
      auto next = budget.next(now);
      if (next > now) {
        ASSERT_LE(next, now + hours(25)) << "seed " << seed;
        if (rng() % 2) now = next;  // exactly when it says
        continue;
      }
      uint64_t bytes = rng() % kBatch;
      budget.spent(bytes, now);
      last_day.emplace_back(now, bytes);
      sum += bytes;
      total += bytes;
      while (last_day.front().first <= now - hours(24)) {
        sum -= last_day.front().second;
        last_day.pop_front();
      }
      ASSERT_LE(sum, kDay + kBatch) << "seed " << seed;
      ASSERT_GE(budget.spent_in_day(now), sum);
    }
    EXPECT_GT(total, 120 / 25 * kDay) << "seed " << seed;
  }
}

TEST(WriteBudget, WritesAreAsFarApartAsTheirBytesDemand) {
  WriteBudget budget(1000, 0);
  WriteBudget::Time now{hours(5)};
  EXPECT_EQ(budget.next(now), now);
  budget.spent(2500, now);
  EXPECT_EQ(budget.next(now), now + std::chrono::milliseconds(2500));
  now += seconds(1);
  budget.spent(500, now);  // overdrawn: it adds up
  EXPECT_EQ(budget.next(now), now + seconds(2));
  now += seconds(100);
  EXPECT_EQ(budget.next(now), now) << "what was not used is not saved";
  EXPECT_FALSE(WriteBudget(0, 0).limited());
}

TEST(WriteBudget, ASpentDayEndsSpillsAndNothingElse) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.write_bytes_per_day = 1;
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(51);
  auto first = random_tokens(rng, 64), second = random_tokens(rng, 64);
  EXPECT_EQ(b.store(first, Durability::durable)->level, Durability::durable);
  uint64_t written = b.stat("ssd_written_bytes");
  EXPECT_GE(written, 4u * 16 * 512);
  EXPECT_EQ(b.stat("ssd_written_day_bytes"), written);
  EXPECT_EQ(b.stat("ssd_write_percent"), 100 * written / (4 * 16 * 512));
  EXPECT_EQ(b.store(second, Durability::spilled)->level, Durability::accepted) << "at once";
  EXPECT_EQ(b.stat("spills_held"), 1u);
  EXPECT_EQ(b.fetch(plus_one(second))->tokens, 64u);
  EXPECT_EQ(b.fetch(plus_one(first))->tokens, 64u);
  auto drained = client.call<Status>([&](auto done) { client.core->drain(soon(), done); });
  EXPECT_EQ(drained.code(), StatusCode::resource_exhausted) << drained.to_string();
  EXPECT_EQ(b.stat("ssd_objects"), 4u);
  EXPECT_EQ(b.stat("ssd_written_day_bytes"), written);
}

TEST(WriteBudget, OneBatchOverdrawsItNotTheNextToo) {
  TempDir dir;
  CacheOptions options = small_options(dir.store());
  options.write_bytes_per_day = 1;
  options.spill_batch_files = 4;
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(53);
  auto tokens = random_tokens(rng, 192);
  EXPECT_EQ(b.store(tokens, Durability::spilled)->level, Durability::accepted);
  client.run();
  EXPECT_EQ(b.stat("ssd_objects"), 4u);
}

TEST(WriteBudget, WhatWasReusedIsWrittenFirstAndParentsBeforeChildren) {
  TempDir dir;
  std::vector<std::string> order;
  CacheOptions options = small_options(dir.store());
  options.write_bytes_per_second = 1ull << 30;
  options.spill_when = SpillWhen::evict;
  options.spill_batch_files = 4;
  options.ssd_observer = [&](Step step, const std::string& name) {
    if (step == Step::renamed && name.ends_with(".block")) order.push_back(name);
  };
  Stepped client(options);
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(52);
  std::map<std::string, size_t> entry_of;
  std::vector<Sequence> entries;
  for (size_t i = 0; i < 6; ++i) {
    entries.push_back(random_tokens(rng, 64));
    Id parent;
    for (uint32_t at = 0; at < 64; at += 16) {
      std::span<const Token> tokens(&entries[i][at], 16);
      parent = block_id(b.opened.realm, parent, tokens, {}, ObjectKind::block);
      entry_of[file_name({ObjectKind::block, parent, 0, 0, 0})] = i;
    }
    ASSERT_TRUE(b.store(entries[i]).ok());
  }
  for (size_t i : {4, 2, 4, 5, 4, 2}) EXPECT_EQ(b.fetch(plus_one(entries[i]))->tokens, 64u);
  auto drained = client.call<Status>([&](auto done) { client.core->drain(soon(), done); });
  ASSERT_TRUE(drained.ok()) << drained.to_string();
  EXPECT_EQ(b.stat("spills_failed"), 0u) << "a child before its parent can't be written";
  ASSERT_EQ(order.size(), 24u);
  std::vector<size_t> first_three;
  for (size_t i = 0; i < 12; ++i) first_three.push_back(entry_of.at(order[i]));
  EXPECT_EQ(first_three, (std::vector<size_t>{4, 4, 4, 4, 2, 2, 2, 2, 5, 5, 5, 5}));
}

}  // namespace
}  // namespace kv
