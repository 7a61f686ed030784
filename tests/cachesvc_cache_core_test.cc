// CacheCore step by step: loop and workers are two contexts that the test pumps, so each order of
// events is chosen, not hoped for.

#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "cachesvc/loop/loop_watch.h"
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

// A directory that holds one entry of 70 tokens: four blocks and a tail.
std::vector<Token> stored_entry(const std::string& dir) {
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 70);
  Stepped client(small_options(dir));
  auto b = Bench::open(client, plain_model());
  EXPECT_TRUE(b.store(tokens, Durability::spilled).ok());
  return tokens;
}

TEST(Core, SixtyFourWaitersShareOneReadPerObject) {
  TempDir dir;
  auto tokens = stored_entry(dir.store());
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  int good = 0;
  for (int i = 0; i < 64; ++i) {
    client.core->fetch(client.session, fetch_of(b, tokens), soon(), [&](Result<FetchReply> hit) {
      good += hit.ok() && hit->tokens == 69 && hit->tier == Tier::ssd;
    });
  }
  client.run_loop();
  EXPECT_EQ(good, 0) << "nothing was read yet";
  client.run();
  EXPECT_EQ(good, 64);
  EXPECT_EQ(b.stat("promotions"), 5u);
  EXPECT_EQ(b.stat("promotion_joins"), 63 * 5u);
  EXPECT_EQ(b.stat("pins"), 0u);
}

TEST(Core, EraseDuringAPromotionLeavesNothing) {
  TempDir dir;
  auto tokens = stored_entry(dir.store());
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  std::optional<uint32_t> served;
  client.core->fetch(client.session, fetch_of(b, tokens), soon(),
                     [&](Result<FetchReply> hit) { served = hit.ok() ? hit->tokens : 9999; });
  std::optional<uint64_t> erased;
  client.core->erase(client.session, b.opened.model, {}, soon(),
                     [&](Result<uint64_t> n) { erased = *n; });
  client.run();
  EXPECT_EQ(served, 0u);
  EXPECT_EQ(erased, 5u);
  EXPECT_EQ(b.stat("ram_objects"), 0u);
  EXPECT_EQ(b.stat("ram_stored_bytes"), 0u);
}

TEST(Core, EraseBetweenPackingAndWritingLeavesNothingOnTheSsd) {
  TempDir dir;
  std::mt19937 rng(2);
  auto tokens = random_tokens(rng, 40);
  {
    Stepped client(small_options(dir.store()));
    auto b = Bench::open(client, plain_model());
    for (int steps = 0; steps < 6; ++steps) {  // stop the spill at each of its first steps
      ASSERT_TRUE(b.store(tokens).ok());
      for (int i = 0; i < steps; ++i) i % 2 ? client.run_loop() : client.run_workers();
      ASSERT_TRUE(client.erase(b.opened.model, {}, soon()).ok());
      client.run();
      EXPECT_EQ(b.stat("ssd_objects") + b.stat("ram_objects"), 0u) << steps;
      EXPECT_EQ(b.stat("spill_queue_bytes"), 0u) << steps;
    }
  }
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  EXPECT_EQ(b.stat("recovered_objects"), 0u);
}

TEST(Core, CommitLevelsFollowTheSpill) {
  TempDir dir;
  std::mt19937 rng(3);
  auto tokens = random_tokens(rng, 40);
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  auto reserved = b.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    auto put = make_put(b.model, 16, tokens, need, reserved->reservation);
    ASSERT_TRUE(client.put(std::move(put), soon()).ok());
  }
  std::optional<CommitReply> reply;
  client.core->commit(client.session, reserved->reservation, Durability::spilled, soon(),
                      [&](Result<CommitReply> r) {
                        if (r.ok()) reply = std::move(*r);
                      });
  client.run_loop();
  EXPECT_FALSE(reply.has_value()) << "no worker ran";
  EXPECT_EQ(client.fetch(fetch_of(b, tokens), soon())->tokens, 39u) << "visible in RAM already";
  client.run();
  ASSERT_TRUE(reply.has_value());
  EXPECT_EQ(reply->level, Durability::spilled);
  auto durable = b.store(tokens, Durability::durable);
  ASSERT_TRUE(durable.ok());
  EXPECT_EQ(durable->level, Durability::durable);
}

TEST(Core, WithoutAnSsdTheLevelSaysSo) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(4);
  auto reply = b.store(random_tokens(rng, 40), Durability::durable);
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->level, Durability::accepted);
}

TEST(Core, DisconnectEndsWaitingCallsOnce) {
  TempDir dir;
  auto tokens = stored_entry(dir.store());
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  int calls = 0;
  StatusCode code = StatusCode::ok;
  client.core->fetch(client.session, fetch_of(b, tokens), soon(), [&](Result<FetchReply> hit) {
    ++calls;
    code = hit.status().code();
  });
  client.core->disconnect(client.session);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(code, StatusCode::unavailable);
  client.run();
  EXPECT_EQ(calls, 1);
  client.session = *client.core->connect("test");
  EXPECT_EQ(b.stat("pins"), 0u);
}

TEST(Core, PassedDeadlineAndUnknownHandles) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model());
  std::mt19937 rng(5);
  auto tokens = random_tokens(rng, 40);
  auto late = client.fetch(fetch_of(b, tokens), deadline_in(std::chrono::milliseconds(-1)));
  EXPECT_EQ(late.status().code(), StatusCode::deadline_exceeded);
  FetchRequest unknown = fetch_of(b, tokens);
  unknown.model = 77;
  EXPECT_EQ(client.fetch(unknown, soon()).status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(client.commit(99, Durability::accepted, soon()).status().code(), StatusCode::not_found);
  EXPECT_EQ(client.core->connect("").status().code(), StatusCode::invalid_argument);
}

TEST(Core, DrainWritesWhatWaits) {
  TempDir dir;
  std::mt19937 rng(6);
  auto tokens = random_tokens(rng, 70);
  for (SpillWhen when : {SpillWhen::commit, SpillWhen::evict}) {
    CacheOptions options = small_options(dir.store());
    options.spill_when = when;
    Stepped client(options);
    auto b = Bench::open(client, plain_model());
    ASSERT_TRUE(client.erase(b.opened.model, {}, soon()).ok());
    ASSERT_TRUE(b.store(tokens).ok());
    auto drained = client.call<Status>([&](auto done) { client.core->drain(soon(), done); });
    EXPECT_TRUE(drained.ok()) << drained.to_string();
    EXPECT_EQ(b.stat("ssd_objects"), 5u);
    EXPECT_EQ(b.reserve(tokens).status().code(), StatusCode::unavailable);
    EXPECT_EQ(client.core->connect("other").status().code(), StatusCode::unavailable);
  }
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  EXPECT_EQ(client.fetch(fetch_of(b, tokens), soon())->tokens, 69u);
}

TEST(Core, OptionsAreChecked) {
  boost::asio::io_context io;
  CacheOptions options;
  options.ram_budget_bytes = 5;
  auto refused = CacheCore::create(options, io.get_executor(), io.get_executor());
  EXPECT_EQ(refused.status().code(), StatusCode::invalid_argument);
  EXPECT_NE(refused.status().message().find("ram_budget_bytes"), std::string::npos);
  options = {};
  auto budget = ram_budget(options);
  ASSERT_TRUE(budget.ok());
  EXPECT_GE(*budget, 1u << 20);
}

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
  some.become(ChargeKind::reply);
  EXPECT_EQ(pool->used_bytes(ChargeKind::reply), 1u << 19);
}

// A promotion reserves all it needs, then takes slab by slab: the memory of what it evicted is
// still there for the last of them.
TEST(RamPool, WhatIsReservedAndNoSlabYetLeavesFreedMemoryInPlace) {
  constexpr uint64_t kSlab = 2 << 20, kSlabs = 80, kFreed = 8;
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

TEST(LoopWatch, TellsTheLongestOfTheLastMinutes) {
  boost::asio::io_context io;
  LoopWatch& watch = LoopWatch::of(io);
  using std::chrono::microseconds, std::chrono::seconds;
  LoopWatch::Clock::time_point now{std::chrono::hours(9)};
  auto expect = [&](seconds later, int64_t wall, int64_t cpu) {
    LoopWatch::Took longest = watch.longest(now + later);
    EXPECT_EQ(longest.wall, microseconds(wall)) << later.count();
    EXPECT_EQ(longest.cpu, microseconds(cpu)) << later.count();
  };
  expect(seconds(0), 0, 0);
  watch.note({microseconds(30), microseconds(20)}, now);
  watch.note({microseconds(500), microseconds(10)}, now + seconds(1));
  watch.note({microseconds(40), microseconds(39)}, now + seconds(2));
  expect(seconds(2), 500, 39);
  expect(seconds(2), 500, 39);  // to all who ask
  watch.note({microseconds(70), microseconds(60)}, now + seconds(61));
  expect(seconds(119), 500, 60);
  expect(seconds(121), 70, 60);
  expect(seconds(300), 0, 0);
  watch.note({microseconds(90), microseconds(80)}, now + seconds(400));
  expect(seconds(521), 0, 0);  // and nobody had asked meanwhile
}

TEST(LoopWatch, CountsWhatIsLongByEitherClock) {
  boost::asio::io_context io;
  LoopWatch& watch = LoopWatch::of(io);
  using std::chrono::microseconds;
  LoopWatch::Clock::time_point now{std::chrono::hours(9)};
  watch.note({microseconds(1000), microseconds(1000)}, now);
  watch.note({microseconds(1001), microseconds(5)}, now);
  watch.note({microseconds(3), microseconds(3)}, now + std::chrono::hours(1));
  watch.note({microseconds(1500), microseconds(1001)}, now + std::chrono::hours(1));
  EXPECT_EQ(watch.handlers(), 4u);
  EXPECT_EQ(watch.over_1ms(), 2u);
  EXPECT_EQ(watch.over_1ms_cpu(), 1u);
}

void spin_3ms() {  // of the thread's time
  for (auto begin = thread_time(); thread_time() - begin < Milliseconds(3);) {
  }
}

// Its waits are none of the processor's; ready at once, or what ends the loop's own wait.
TEST(LoopWatch, TimesAHandlerFromItsBeginByBothClocks) {
  for (Milliseconds before : {Milliseconds(0), Milliseconds(200)}) {
    SCOPED_TRACE(before.count());
    boost::asio::io_context io;
    auto begin = LoopWatch::Clock::now();
    boost::asio::steady_timer timer(io, before);
    timer.async_wait([](boost::system::error_code) {
      std::this_thread::sleep_for(Milliseconds(30));
      spin_3ms();
    });
    LoopWatch::run(io);
    auto all = LoopWatch::Clock::now() - begin;
    LoopWatch& watch = LoopWatch::of(boost::asio::any_io_executor(io.get_executor()));
    LoopWatch::Took longest = watch.longest(LoopWatch::Clock::now());
    EXPECT_GE(longest.wall, Milliseconds(33));
    EXPECT_LE(longest.wall, all - before);
    EXPECT_GE(longest.cpu, Milliseconds(3));
    EXPECT_LE(longest.cpu, longest.wall - Milliseconds(30));
    EXPECT_EQ(watch.handlers(), 1u);
    EXPECT_EQ(watch.over_1ms(), 1u);
    EXPECT_EQ(watch.over_1ms_cpu(), 1u);
  }
}

TEST(LoopWatch, TimesEachHandlerByItself) {
  boost::asio::io_context io;
  for (int i = 0; i < 20; ++i) boost::asio::post(io, spin_3ms);
  LoopWatch::run(io);
  LoopWatch::Took longest = LoopWatch::of(io).longest(LoopWatch::Clock::now());
  EXPECT_GE(longest.cpu, Milliseconds(3));
  EXPECT_LT(longest.cpu, Milliseconds(30)) << "half of what all took";
  EXPECT_EQ(LoopWatch::of(io).handlers(), 20u);
  EXPECT_EQ(LoopWatch::of(io).over_1ms_cpu(), 20u);
}

// A descriptor that becomes ready while nobody waits for it wakes the loop and begins no handler.
TEST(LoopWatch, LeavesOutWhatWakesTheLoopForNoHandler) {
  boost::asio::io_context io;
  boost::asio::local::stream_protocol::socket ours(io), theirs(io);
  boost::asio::local::connect_pair(ours, theirs);
  ours.async_wait(boost::asio::socket_base::wait_read, [](boost::system::error_code) {});
  ASSERT_EQ(::write(theirs.native_handle(), "x", 1), 1);
  LoopWatch::run(io);  // from now on the reactor is told of every byte that comes
  io.restart();
  auto guard = boost::asio::make_work_guard(io);
  std::thread peer([&] {
    for (int i = 0; i < 200; ++i) {  // fewer than the socket holds
      EXPECT_EQ(::write(theirs.native_handle(), "x", 1), 1);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    boost::asio::post(io, [&] { guard.reset(); });
  });
  auto before = thread_time();
  LoopWatch::run(io);
  auto used = thread_time() - before;
  peer.join();
  EXPECT_LT(LoopWatch::of(io).longest(LoopWatch::Clock::now()).cpu, used / 2);
}

TEST(LoopWatch, IsAGaugeOfTheCache) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(8);
  ASSERT_TRUE(b.store(random_tokens(rng, 64)).ok());
  EXPECT_GT(b.stat("loop_longest_us"), 0u);
  EXPECT_GT(b.stat("loop_longest_cpu_us"), 0u);
  EXPECT_GT(b.stat("loop_handlers"), 5u);
  EXPECT_GT(b.stat("loop_handlers"), b.stat("loop_over_1ms"));
  uint64_t of_the_processor = b.stat("loop_over_1ms_cpu");
  EXPECT_GE(b.stat("loop_over_1ms"), of_the_processor);
}

}  // namespace
}  // namespace kv
