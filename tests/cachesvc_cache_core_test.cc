// CacheCore step by step: loop and workers are two contexts that the test pumps, so each order of
// events is chosen, not hoped for.
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

}  // namespace
}  // namespace kv
