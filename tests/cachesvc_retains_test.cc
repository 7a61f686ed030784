// Retains: what was asked to stay goes last of its share, and no longer than its time or release.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class RetainsTest : public ::testing::Test {
 protected:
  RetainsTest() { start(small_options(dir_.store())); }
  void start(const CacheOptions& options) {
    core_.reset();
    core_ = std::make_unique<CoreOwners>(options);
    core_->open_model();
    session_ = core_->connect();
  }
  std::vector<Token> stored(size_t n) {
    auto tokens = random_tokens(rng_, n);
    core_->store(session_, tokens, Durability::durable);
    return tokens;
  }
  RetainReply retain(const std::vector<Token>& tokens, Milliseconds time) {
    const RetainRequest request{1, {plus_one(tokens), {}}, {}, time};
    auto reply = core_->call<Result<RetainReply>>(
        [&](auto done) { core_->holds.retain(session_, request, soon(), done); });
    KV_CHECK(reply && reply->ok());
    return std::move(**reply);
  }
  /// The places of the entry's last object among what would go, in RAM and on the SSD.
  std::vector<size_t> places(const std::vector<Token>& tokens) {
    const RealmState& realm = *core_->model->realm;
    const EntryKey key = realm.nodes.at(realm.tree.find_path(tokens, {}).back()).main->key;
    std::vector<size_t> out;
    for (Shares* order : {&core_->index.tiers().ram(), &core_->index.tiers().ssd()}) {
      const auto keys = order->next_victims(UINT64_MAX, true).keys;
      out.push_back(static_cast<size_t>(std::find(keys.begin(), keys.end(), key) - keys.begin()));
    }
    return out;
  }

  TempDir dir_;
  std::mt19937 rng_{101};
  std::unique_ptr<CoreOwners> core_;
  uint64_t session_ = 0;
};

TEST_F(RetainsTest, GoLastUntilTheyAreReleased) {
  const auto first = stored(40);
  stored(40), stored(40);
  EXPECT_EQ(places(first), (std::vector<size_t>{0, 0}));
  const RetainReply reply = retain(first, Milliseconds(60'000));
  EXPECT_EQ(reply.outcome, Outcome::accepted) << reply.reason;
  EXPECT_EQ(reply.tokens, 40u);
  EXPECT_EQ(core_->holds.retains(), 1u);
  EXPECT_EQ(core_->holds.size(), 0u);
  EXPECT_EQ(core_->index.tiers().pins(), 0u) << "nothing is pinned";
  EXPECT_EQ(places(first), (std::vector<size_t>{6, 6}));
  const RetainReply twice = retain(first, Milliseconds(60'000));
  for (uint64_t number : {reply.number, twice.number}) {
    EXPECT_EQ(places(first), (std::vector<size_t>{6, 6}));
    core_->call<Status>([&](auto done) { core_->holds.release(session_, number, soon(), done); });
  }
  EXPECT_EQ(places(first), (std::vector<size_t>{0, 0}));
  EXPECT_EQ(core_->holds.bytes(), 0u);
}

TEST_F(RetainsTest, EndByTheirTime) {
  const auto first = stored(40);
  stored(40);
  retain(first, Milliseconds(1));
  core_->run_for(Milliseconds(20));
  EXPECT_EQ(core_->holds.retains(), 0u);
  EXPECT_EQ(places(first), (std::vector<size_t>{0, 0}));
}

TEST_F(RetainsTest, AreBoundedAndSaySo) {
  EXPECT_EQ(retain(random_tokens(rng_, 40), Milliseconds(9)).outcome, Outcome::missing);
  const auto tokens = stored(40);
  const RetainReply longest = retain(tokens, std::chrono::hours(25));
  EXPECT_EQ(longest.outcome, Outcome::clipped);
  EXPECT_EQ(longest.time, kMostRetainTime);
  CacheOptions options = small_options(dir_.store());
  options.max_holds = 1;
  start(options);
  const auto other = stored(40);
  EXPECT_EQ(retain(other, Milliseconds(60'000)).outcome, Outcome::accepted);
  const RetainReply over = retain(other, Milliseconds(60'000));
  EXPECT_EQ(over.outcome, Outcome::rejected);
  EXPECT_NE(over.reason.find("holds"), std::string::npos) << over.reason;
  EXPECT_EQ(core_->env->count.over_quota, 1u);
}

TEST_F(RetainsTest, TakeNoMoreThanTheirPartOfTheShare) {
  CacheOptions options = small_options(dir_.store());
  options.hold_fraction = 0.0005;  // of 32 MiB or so: a few blocks
  start(options);
  const auto tokens = stored(16 * 30);
  const RetainReply reply = retain(tokens, Milliseconds(60'000));
  EXPECT_EQ(reply.outcome, Outcome::clipped);
  EXPECT_GT(reply.tokens, 0u);
  EXPECT_LT(reply.tokens, 480u);
  EXPECT_NE(reply.reason.find("held bytes"), std::string::npos) << reply.reason;
}

TEST_F(RetainsTest, WhatIsErasedMeanwhileIsLetGo) {
  const auto tokens = stored(40);
  const RetainReply reply = retain(tokens, Milliseconds(60'000));
  core_->call<Result<uint64_t>>(
      [&](auto done) { core_->eraser.erase(session_, 1, {}, soon(), done); });
  core_->call<Status>(
      [&](auto done) { core_->holds.release(session_, reply.number, soon(), done); });
  EXPECT_EQ(core_->holds.bytes(), 0u);
}

}  // namespace
}  // namespace kv
