// The write budget: what may be written in a day and a second, what is written first when that is
// not enough, and that nothing but spills waits for it. And the day's account over restarts, kills,
// a lost catalog, and a wall clock that is set.
#include <fcntl.h>
#include <sys/stat.h>

#include <deque>

#include "cachesvc/core/write_budget.h"
#include "tests/support/cachesvc_stepped.h"

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

// Ten days of real time, processes of some hours each with a monotonic clock of its own, and a wall
// clock that is set now and then, by at most `back` hours or `forward`.
struct Days {
  uint64_t in_a_day = 0;  ///< the most in any 24 hours
  uint64_t total = 0;
  seconds longest_wait{0};
};
constexpr uint64_t kDay = 1'000'000, kBatch = 5'000;
Days simulate(uint64_t seed, uint32_t restart_one_in, int64_t back, int64_t forward) {
  std::mt19937_64 rng(seed);
  Days out;
  seconds real{0}, wall{hours(500'000) + seconds(rng() % 3600)}, monotonic{rng() % 1'000'000};
  auto steady = [&] { return WriteBudget::Time(monotonic); };
  auto clock = [&] { return WriteBudget::Wall(wall); };
  std::deque<std::pair<seconds, uint64_t>> last_day;
  uint64_t sum = 0;
  auto budget = std::make_unique<WriteBudget>(0, kDay);
  budget->restore({}, steady(), clock());
  for (seconds waiting{0}; real < hours(240);) {
    seconds step(rng() % 300);
    real += step, wall += step, monotonic += step, waiting += step;
    if (rng() % 500 == 0 && back > 0) wall -= seconds(rng() % (3600 * static_cast<uint64_t>(back)));
    if (rng() % 500 == 0 && forward > 0) {
      wall += seconds(rng() % (3600 * static_cast<uint64_t>(forward)));
    }
    if (rng() % restart_one_in == 0) {
      auto kept = budget->kept(steady(), clock());
      monotonic = seconds(rng() % 1'000'000);
      budget = std::make_unique<WriteBudget>(0, kDay);
      budget->restore(kept, steady(), clock());
    }
    out.longest_wait = std::max(out.longest_wait, waiting);
    if (budget->next(steady()) > steady()) continue;
    waiting = seconds(0);
    uint64_t bytes = rng() % kBatch;
    budget->spent(bytes, steady());
    last_day.emplace_back(real, bytes);
    sum += bytes, out.total += bytes;
    while (last_day.front().first <= real - hours(24)) {
      sum -= last_day.front().second;
      last_day.pop_front();
    }
    out.in_a_day = std::max(out.in_a_day, sum);
  }
  return out;
}

TEST(WriteBudget, RestartsNeitherForgetNorRenewWhatWasSpent) {
  for (uint32_t restart_one_in : {1, 2, 10, 100, 1000}) {
    for (uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(restart_one_in) + ", seed " + std::to_string(seed));
      Days days = simulate(seed, restart_one_in, 0, 0);
      EXPECT_LE(days.in_a_day, kDay + kBatch);
      EXPECT_GT(days.total, 9 * kDay);
      EXPECT_LE(days.longest_wait, hours(25));
    }
  }
}

TEST(WriteBudget, AClockThatIsSetBackForgetsNothingAndBlocksNobodyForEver) {
  for (int64_t back : {1, 5, 100, 100'000}) {
    for (uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(back) + " hours, seed " + std::to_string(seed));
      Days days = simulate(seed, 30, back, 0);
      EXPECT_LE(days.in_a_day, kDay + kBatch);
      EXPECT_GT(days.total, 4 * kDay);
    }
  }
}

TEST(WriteBudget, AClockThatIsSetForwardForgetsADayAtMostEachTime) {
  for (int64_t forward : {1, 5, 100, 100'000}) {
    for (uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(std::to_string(forward) + " hours, seed " + std::to_string(seed));
      Days days = simulate(seed, 30, 0, forward);
      EXPECT_LE(days.total, (11 + 2 * 240 * 24 / 500) * kDay);
      EXPECT_LE(days.longest_wait, hours(25));
    }
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

// A day's budget that one process spent, and what the next one makes of it.
class SpentDay : public ::testing::Test {
 protected:
  SpentDay() {
    options_.write_bytes_per_day = 1;
    options_.wall_clock = [this] { return now_; };
  }
  /// Stores something, and tells whether it reached the SSD.
  bool spills(Bench& b) {
    return b.store(random_tokens(rng_, 64), Durability::spilled)->level >= Durability::spilled;
  }
  void spend() {
    Stepped client(options_);
    auto b = Bench::open(client, plain_model());
    ASSERT_TRUE(spills(b));
    ASSERT_FALSE(spills(b));
    drain(client);
    spent_ = b.stat("ssd_written_day_bytes");
  }
  void drain(Stepped& client) {
    (void)client.call<Status>([&](auto done) { client.core->drain(soon(), done); });
  }
  bool spills_after(std::chrono::seconds pause) {
    now_ += pause;
    Stepped client(options_);
    auto b = Bench::open(client, plain_model());
    at_start_ = b.stat("ssd_written_day_bytes");
    bool spilled = spills(b);
    drain(client);
    return spilled;
  }
  // Their hours are the test's, not the machine's.
  void set_times_of_files() {
    auto at = std::chrono::system_clock::to_time_t(now_);
    for (const auto& e : std::filesystem::recursive_directory_iterator(dir_.store())) {
      timespec times[] = {{at, 0}, {at, 0}};
      if (e.is_regular_file()) ::utimensat(AT_FDCWD, e.path().c_str(), times, 0);
    }
  }

  TempDir dir_;
  CacheOptions options_ = small_options(dir_.store());
  std::chrono::system_clock::time_point now_{hours(500'000)};
  std::mt19937 rng_{54};
  uint64_t spent_ = 0, at_start_ = 0;
};

TEST_F(SpentDay, IsSpentAfterARestartToo) {
  spend();
  EXPECT_FALSE(spills_after(hours(0)));
  EXPECT_GE(at_start_, spent_);
  EXPECT_LT(at_start_, spent_ + 200'000) << "the records' and the catalog's";
  EXPECT_FALSE(spills_after(hours(23)));
  EXPECT_TRUE(spills_after(hours(48)));
}

TEST_F(SpentDay, IsSpentAfterTheClockWasSetBackAndEndsADayLater) {
  spend();
  EXPECT_FALSE(spills_after(-hours(100'000)));
  EXPECT_FALSE(spills_after(hours(23)));
  EXPECT_TRUE(spills_after(hours(26)));
}

// What the state did not tell any more, the files tell.
TEST_F(SpentDay, IsSpentAfterAKill) {
  spend();
  ASSERT_TRUE(spills_after(hours(50)));
  now_ += hours(50);
  std::string killed = dir_.store() + "-killed";
  {
    Stepped client(options_);
    auto b = Bench::open(client, plain_model());
    EXPECT_LT(b.stat("ssd_written_day_bytes"), 200'000u);
    ASSERT_TRUE(spills(b));
    set_times_of_files();
    std::filesystem::copy(dir_.store(), killed, std::filesystem::copy_options::recursive);
  }
  std::filesystem::remove_all(dir_.store());
  std::filesystem::rename(killed, dir_.store());
  set_times_of_files();
  EXPECT_FALSE(spills_after(hours(1)));
  EXPECT_GE(at_start_, 4u * 16 * 512);
  EXPECT_TRUE(spills_after(hours(26)));
}

TEST_F(SpentDay, IsTakenForSpentWithoutItsCatalogAndComesBackHourByHour) {
  options_.write_bytes_per_day = 24ull << 20;
  {
    Stepped client(options_);
    auto b = Bench::open(client, plain_model());
    ASSERT_TRUE(spills(b));
    drain(client);
  }
  std::filesystem::remove(dir_.store() + "/catalog.db");
  EXPECT_FALSE(spills_after(hours(0)));
  EXPECT_GE(at_start_, options_.write_bytes_per_day);
  EXPECT_TRUE(spills_after(hours(1)));
  EXPECT_GT(at_start_, options_.write_bytes_per_day - (2u << 20));
  EXPECT_TRUE(spills_after(hours(25)));
  EXPECT_LT(at_start_, 2u << 20);
}

TEST_F(SpentDay, IsNotThatOfAnEmptyStore) {
  options_.write_bytes_per_day = 24ull << 20;
  EXPECT_TRUE(spills_after(hours(0)));
  EXPECT_LT(at_start_, 200'000u);
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
