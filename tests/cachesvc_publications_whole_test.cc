// Publications: an entry of many blocks becomes visible in steps, with others served between them,
// and whatever they do it ends whole.
#include "cachesvc/core/publications.h"
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

using Sequence = std::vector<Token>;

constexpr uint32_t kBlocks = 4 * Publications::kObjectsPerStep, kTokens = kBlocks * 16;

class PublicationTest : public ::testing::Test {
 protected:
  // All of an entry but its commit, as `client`'s session.
  ReserveReply put_all(Bench& b, const Sequence& tokens) {
    auto reserved = b.reserve(tokens);
    EXPECT_TRUE(reserved.ok()) << reserved.status().to_string();
    for (const Need& need : reserved->needs) {
      auto put = make_put(b.model, 16, tokens, need, reserved->reservation);
      EXPECT_TRUE(b.client.put(std::move(put), soon()).ok());
    }
    return *reserved;
  }
  void commit(Stepped& client, const ReserveReply& reserved,
              std::optional<Result<CommitReply>>& to) {
    client.core->commit(client.session, reserved.reservation, Durability::accepted, soon(),
                        [&to](Result<CommitReply> r) { to.emplace(std::move(r)); });
  }
  // A client that commits a long entry: some of it is visible.
  struct Begun {
    explicit Begun(const CacheOptions& options) : client(options) {}
    std::optional<Result<CommitReply>> done;  // outlives the client that answers
    Sequence tokens;
    Stepped client;
    Bench b = Bench::open(client, plain_model(1));
  };
  std::unique_ptr<Begun> begin(const CacheOptions& options = small_options()) {
    auto begun = std::make_unique<Begun>(options);
    begun->tokens = random_tokens(rng_, kTokens);
    commit(begun->client, put_all(begun->b, begun->tokens), begun->done);
    step_until_visible(begun->client, begun->b, begun->tokens);
    return begun;
  }
  // One handler of the loop.
  static void step(Stepped& client) {
    client.loop.restart();
    client.loop.poll_one();
    client.core->check_invariants();
  }
  static uint32_t visible(Stepped& client, const Bench& b, const Sequence& tokens) {
    uint32_t found = 0;
    client.core->lookup(client.session, {b.opened.model, {tokens, {}}}, soon(),
                        [&](Result<LookupReply> r) { found = r.ok() ? r->tokens : 0; });
    return found;
  }

  static void step_until_visible(Stepped& client, const Bench& b, const Sequence& tokens) {
    while (visible(client, b, tokens) == 0) step(client);
  }

  TempDir dir_;
  std::mt19937 rng_{11};
};

TEST_F(PublicationTest, OthersAreServedBetweenItsSteps) {
  auto begun = begin();
  auto& [done, tokens, client, b] = *begun;
  std::set<uint32_t> seen;
  while (!done) {
    seen.insert(visible(client, b, plus_one(tokens)));
    step(client);
  }
  ASSERT_TRUE(done->ok()) << done->status().to_string();
  EXPECT_TRUE((*done)->lost.empty());
  EXPECT_EQ((*done)->level, Durability::accepted);
  EXPECT_GE(seen.size(), 4u) << "visible lengths while it went on";
  for (uint32_t n : seen) EXPECT_EQ(n % (16 * Publications::kObjectsPerStep), 0u);
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, kTokens);
}

// Its client may go, its time may be up: it ends all the same.
TEST_F(PublicationTest, OutlivesItsSession) {
  auto begun = begin();
  auto& [done, tokens, client, b] = *begun;
  client.core->disconnect(client.session);
  client.session = *client.core->connect("test");
  client.run();
  auto again = Bench::open(client, plain_model(1));
  EXPECT_EQ(again.fetch(plus_one(tokens))->tokens, kTokens);
  EXPECT_EQ(again.stat("reservations"), 0u);
  EXPECT_EQ(again.stat("objects_lost"), 0u);
}

// Nothing of it is left when the erase is answered, and what is committed later stays.
TEST_F(PublicationTest, AnEraseWaitsForItAndWhatComesLaterWaitsForTheErase) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model(1));
  const Sequence tokens = random_tokens(rng_, kTokens), later = random_tokens(rng_, 40);
  const ReserveReply first = put_all(b, tokens), second = put_all(b, later);
  std::optional<Result<CommitReply>> done, later_done;
  std::optional<Result<uint64_t>> erased;
  commit(client, first, done);
  step_until_visible(client, b, tokens);
  client.core->erase(client.session, b.opened.model, {}, soon(),
                     [&](Result<uint64_t> r) { erased.emplace(std::move(r)); });
  commit(client, second, later_done);
  EXPECT_FALSE(later_done) << "the erase would not know it";
  while (!done) step(client);
  EXPECT_FALSE(later_done);
  client.run();
  ASSERT_TRUE(done->ok() && erased && erased->ok() && later_done && later_done->ok());
  EXPECT_TRUE((*done)->lost.empty());
  EXPECT_EQ(**erased, kBlocks);
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, 0u);
  EXPECT_EQ(b.fetch(plus_one(later))->tokens, later.size());
}

// Erases of another namespace do not wait.
TEST_F(PublicationTest, AnotherNamespacesEraseDoesNotWaitForIt) {
  std::optional<Result<uint64_t>> erased;
  auto begun = begin();
  auto& [done, tokens, client, b] = *begun;
  const uint64_t other = *client.core->connect("other");
  client.core->erase(other, 0, {}, soon(),
                     [&](Result<uint64_t> r) { erased.emplace(std::move(r)); });
  while (!erased) {
    client.workers.restart();
    client.workers.poll();
    step(client);
  }
  EXPECT_TRUE(erased->ok());
  EXPECT_FALSE(done) << "an empty namespace took longer than four steps";
  client.run();
  EXPECT_TRUE(done && done->ok());
}

TEST_F(PublicationTest, TwoOfOnePromptLoseNothing) {
  Stepped client(small_options());
  auto b = Bench::open(client, plain_model(1));
  const Sequence tokens = random_tokens(rng_, kTokens);
  const ReserveReply first = put_all(b, tokens), second = put_all(b, tokens);
  std::optional<Result<CommitReply>> one, two;
  commit(client, first, one);
  step_until_visible(client, b, tokens);
  commit(client, second, two);
  while (!one || !two) step(client);
  ASSERT_TRUE(one->ok() && two->ok());
  EXPECT_EQ((*one)->foreign.size() + (*two)->foreign.size(), kBlocks);
  EXPECT_TRUE((*one)->lost.empty() && (*two)->lost.empty());
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, kTokens);
}

// Objects that have their place are pinned: others who need room meanwhile take none of it.
TEST_F(PublicationTest, NothingOfItIsEvictedBeforeItsEnd) {
  auto begun = begin();
  auto& [done, tokens, client, b] = *begun;
  const uint32_t before = visible(client, b, plus_one(tokens));
  ASSERT_GT(before, 0u);
  ASSERT_LT(before, kTokens);
  RamPool& pool = *client.core->pool();
  auto replies = client.core->memory().reply_room({}, pool.budget_bytes() / 4 * 3);
  ASSERT_TRUE(replies);
  EXPECT_FALSE(client.core->memory().session_room(pool.budget_bytes() - pool.used_bytes() + 1));
  EXPECT_GE(visible(client, b, plus_one(tokens)), before);
  client.run();
  ASSERT_TRUE(done && done->ok());
  EXPECT_TRUE((*done)->lost.empty());
}

// An orderly end writes what was becoming visible.
TEST_F(PublicationTest, ADrainWaitsForIt) {
  Sequence tokens;
  CacheOptions options = small_options(dir_.store());
  options.spill_when = SpillWhen::evict;
  {
    auto begun = begin(options);
    Stepped& client = begun->client;
    tokens = begun->tokens;
    ASSERT_TRUE(client.call<Status>([&](auto told) { client.core->drain(soon(), told); }).ok());
    EXPECT_TRUE(begun->done && begun->done->ok());
  }
  Stepped again(small_options(dir_.store()));
  auto b = Bench::open(again, plain_model(1));
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, kTokens);
}

}  // namespace
}  // namespace kv
