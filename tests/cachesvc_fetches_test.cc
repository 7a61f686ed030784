// Fetches by themselves: hits, misses, what waits and what does not, and the lease.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class FetchesTest : public ::testing::Test {
 protected:
  CoreOwners& core() {
    if (!core_) {
      core_ = std::make_unique<CoreOwners>(small_options(dir_.store()));
      core_->open_model();
      session_ = core_->connect();
    }
    return *core_;
  }
  std::vector<Token> stored(size_t n, Durability level = Durability::accepted) {
    core();
    auto tokens = random_tokens(rng_, n);
    core_->store(session_, tokens, level);
    return tokens;
  }
  // Everything leaves RAM that the SSD has.
  void evict_all() {
    for (auto& node : core().model->realm->nodes) {
      if (node.main && node.main->ram) core().recency.leave_ram(*node.main);
    }
  }
  std::optional<Result<FetchReply>> fetch(const std::vector<Token>& tokens) {
    return core().fetch(session_, tokens);
  }
  TempDir dir_;
  std::mt19937 rng_{8};
  std::unique_ptr<CoreOwners> core_;
  uint64_t session_ = 0;
};

TEST_F(FetchesTest, AHitPinsWhatItGivesUntilTheLeaseEnds) {
  const auto tokens = stored(40);
  const uint64_t before = core().index.tiers().pins();
  auto hit = fetch(plus_one(tokens));
  ASSERT_TRUE(hit && hit->ok());
  EXPECT_EQ((*hit)->tokens, 40u);
  EXPECT_EQ((*hit)->tier, Tier::ram);
  EXPECT_EQ(core().index.tiers().pins(), before + 3);
  (*hit)->lease = Lease();
  core().run();
  EXPECT_EQ(core().index.tiers().pins(), before);
}

TEST_F(FetchesTest, TheLastTokenOfAQueryIsAlwaysComputed) {
  const auto tokens = stored(40);
  auto hit = fetch(tokens);
  ASSERT_TRUE(hit && hit->ok());
  EXPECT_EQ((*hit)->tokens, 39u);
}

TEST_F(FetchesTest, AMissSaysWhereItPartsAndIsCounted) {
  auto tokens = stored(40);
  tokens[20] += 1;
  auto hit = fetch(tokens);
  ASSERT_TRUE(hit && hit->ok());
  EXPECT_EQ((*hit)->tokens, 20u);
  auto other = fetch(random_tokens(rng_, 40));
  ASSERT_TRUE(other && other->ok());
  EXPECT_EQ((*other)->tokens, 0u);
  EXPECT_EQ(core().env->count.fetch_misses, 1u);
}

TEST_F(FetchesTest, WhatLiesOnTheSsdIsPromotedFirst) {
  const auto tokens = stored(40, Durability::durable);
  evict_all();
  auto hit = fetch(plus_one(tokens));
  ASSERT_TRUE(hit && hit->ok());
  EXPECT_EQ((*hit)->tokens, 40u);
  EXPECT_EQ((*hit)->tier, Tier::ssd);
  EXPECT_EQ((*fetch(plus_one(tokens)))->tier, Tier::ram);
}

// Another conversation on a stored system prompt, whose own tail lies on the SSD: the block of a
// longer entry has the same rows, in RAM and later on the SSD too.
TEST_F(FetchesTest, AHitOnAPartUsesTheBlockOfALongerEntry) {
  const auto prompt = stored(40, Durability::durable);
  evict_all();
  auto longer = prompt, another = prompt;
  for (auto* t : {&longer, &another}) t->resize(60);
  for (size_t i = 40; i < 60; ++i) another[i] = (longer[i] = static_cast<Token>(i)) + 1;
  core().store(session_, longer, Durability::durable);
  ASSERT_EQ((*fetch(plus_one(longer)))->tier, Tier::mixed) << "the first two blocks are read";
  const uint64_t before = core().env->count.promotions;
  auto hit = fetch(another);
  ASSERT_TRUE(hit && hit->ok());
  EXPECT_EQ((*hit)->tokens, 40u);
  EXPECT_EQ((*hit)->tier, Tier::ram);
  EXPECT_EQ((*hit)->form, HitForm::coded);
  auto held = core().call<Result<HoldReply>>([&](auto done) {
    core().holds.hold(session_, {1, {another, {}}, {}, Milliseconds(60'000)}, soon(), done);
  });
  ASSERT_TRUE(held && held->ok());
  FetchRequest by_number;
  by_number.model = 1;
  by_number.hold = (*held)->number;
  auto same = core().call<Result<FetchReply>>(
      [&](auto done) { core().fetches.fetch(session_, by_number, soon(), done); });
  ASSERT_TRUE(same && same->ok());
  EXPECT_EQ((*same)->tokens, 40u);
  EXPECT_EQ((*same)->form, HitForm::coded) << "what the hold pins";
  EXPECT_EQ(core().env->count.promotions, before);
  auto repeat = fetch(plus_one(prompt));
  ASSERT_TRUE(repeat && repeat->ok());
  EXPECT_EQ((*repeat)->form, HitForm::exact_tail);
  EXPECT_EQ(core().env->count.promotions, before + 1);
  evict_all();
  ASSERT_EQ((*fetch(plus_one(prompt)))->form, HitForm::exact_tail) << "the tail is in RAM";
  const auto again = fetch(another);
  ASSERT_TRUE(again && again->ok());
  EXPECT_EQ((*again)->tier, Tier::mixed);
  EXPECT_EQ((*again)->form, HitForm::coded) << "what it gives does not depend on tiers";
}

TEST_F(FetchesTest, WhoDoesNotWaitIsToldThatItIsPending) {
  const auto tokens = stored(40, Durability::durable);
  evict_all();
  core().hangs = true;
  FetchRequest request;
  request.model = 1;
  request.query.tokens = plus_one(tokens);
  request.wait = false;
  auto reply = core().call<Result<FetchReply>>(
      [&](auto done) { core().fetches.fetch(session_, request, soon(), done); });
  ASSERT_TRUE(reply && reply->ok());
  EXPECT_TRUE((*reply)->pending);
  core().hangs = false;
  core().run_all();
  EXPECT_EQ((*fetch(plus_one(tokens)))->tier, Tier::ssd) << "which had it when it was first asked";
}

TEST_F(FetchesTest, ALookupPromotesNothingAPrefetchDoes) {
  const auto tokens = stored(40, Durability::durable);
  evict_all();
  for (bool prefetch : {false, true}) {
    auto found = core().call<Result<LookupReply>>([&](auto done) {
      const Query query{plus_one(tokens), {}};
      if (prefetch) return core().fetches.prefetch(session_, {1, query}, soon(), done);
      core().fetches.lookup(session_, {1, query}, soon(), done);
    });
    ASSERT_TRUE(found && found->ok());
    EXPECT_EQ((*found)->tokens, 40u);
    EXPECT_EQ((*found)->tier, Tier::ssd);
    EXPECT_EQ(core().env->count.promotions > 0, prefetch);
  }
}

TEST_F(FetchesTest, AQueryThatIsTooLongIsRefused) {
  core();
  auto refused = fetch(std::vector<Token>(kMaxTokens + 1));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->status().code(), StatusCode::invalid_argument);
}

TEST_F(FetchesTest, ACancelledFetchIsAnsweredAtOnceAndLetsGo) {
  const auto tokens = stored(40, Durability::durable);
  evict_all();
  core().hangs = true;
  const uint64_t before = core().index.tiers().pins();
  FetchRequest request;
  request.model = 1;
  request.query.tokens = plus_one(tokens);
  std::vector<StatusCode> ends;
  core().fetches.fetch(session_, request, {soon(), 5},
                       [&](Result<FetchReply> r) { ends.push_back(r.status().code()); });
  core().run();
  EXPECT_GT(core().index.tiers().pins(), before);
  core().calls.cancel(session_, 5);
  EXPECT_EQ(ends, std::vector<StatusCode>{StatusCode::cancelled});
  core().hangs = false;
  core().run_all();
  EXPECT_EQ(ends.size(), 1u);
  EXPECT_EQ(core().index.tiers().pins(), before);
  EXPECT_EQ((*fetch(plus_one(tokens)))->tier, Tier::ram) << "reads that had begun have ended";
}

TEST_F(FetchesTest, ACancelledPrefetchBeginsNoMoreReads) {
  const auto tokens = stored(16 * 100, Durability::durable);
  evict_all();
  for (const bool cancelled : {true, false}) {
    const uint64_t before = core().env->count.promotions;
    const PrefetchRequest request{1, {plus_one(tokens), {}}, {}, true};
    std::vector<StatusCode> ends;
    core().fetches.prefetch(session_, request, {soon(), 5},
                            [&](Result<LookupReply> r) { ends.push_back(r.status().code()); });
    if (cancelled) core().calls.cancel(session_, 5);
    core().run_all();
    EXPECT_EQ(ends, std::vector<StatusCode>{cancelled ? StatusCode::cancelled : StatusCode::ok});
    EXPECT_EQ(core().env->count.promotions - before, cancelled ? 0u : 100u);
  }
}

}  // namespace
}  // namespace kv
