// Demotes by themselves: what leaves RAM, what stays, and what waits for the SSD.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class DemotesTest : public ::testing::Test {
 protected:
  CoreOwners& core() {
    if (!core_) {
      core_ = std::make_unique<CoreOwners>(small_options(dir_.store()));
      core_->open_model();
      session_ = core_->connect();
    }
    return *core_;
  }
  std::vector<Token> stored(std::vector<Token> tokens, Durability level = Durability::durable) {
    core().store(session_, tokens, level);
    return tokens;
  }
  std::vector<Token> fresh(size_t n) { return random_tokens(rng_, n); }
  DemoteReply demote(const std::vector<Token>& tokens, uint64_t hold = 0) {
    core();
    DemoteRequest request;
    request.model = 1;
    request.query.tokens = tokens;
    request.hold = hold;
    auto reply = core().call<Result<DemoteReply>>(
        [&](auto done) { core().demotes.demote(session_, request, soon(), done); });
    KV_CHECK(reply && reply->ok());
    return **reply;
  }
  uint64_t hold(const std::vector<Token>& tokens) {
    auto reply = core().call<Result<HoldReply>>([&](auto done) {
      const HoldRequest request{1, {tokens, {}}, {}, Milliseconds(60'000)};
      core().holds.hold(session_, request, soon(), done);
    });
    KV_CHECK(reply && reply->ok());
    return (*reply)->number;
  }
  void release(uint64_t hold) {
    core().call<Status>([&](auto done) { core().holds.release(session_, hold, soon(), done); });
    core().run_all();
  }
  // Nothing of it is on the SSD, which hangs from now on.
  std::vector<Token> stored_in_ram(std::vector<Token> tokens) {
    core().hangs = true;
    return stored(std::move(tokens), Durability::accepted);
  }
  size_t in_ram() { return core().index.tiers().ram().size(); }

  TempDir dir_;
  std::mt19937 rng_{12};
  std::unique_ptr<CoreOwners> core_;
  uint64_t session_ = 0;
};

TEST_F(DemotesTest, WhatTheSsdHasLeavesRamAndComesBack) {
  const auto tokens = stored(fresh(16 * 100 + 5));  // more than one handler's objects
  const uint64_t before = core().env->pool->used_bytes(ChargeKind::stored);
  EXPECT_EQ(in_ram(), 101u);
  const DemoteReply reply = demote(plus_one(tokens));
  EXPECT_EQ(reply.outcome, Outcome::accepted) << reply.reason;
  EXPECT_EQ(reply.tokens, 1605u);
  EXPECT_EQ(in_ram(), 0u);
  EXPECT_EQ(core().env->count.demoted_objects, 101u);
  EXPECT_GT(before, 0u);
  EXPECT_EQ(core().env->pool->used_bytes(ChargeKind::stored), 0u);
  auto hit = core().fetch(session_, plus_one(tokens));
  ASSERT_TRUE(hit && hit->ok());
  EXPECT_EQ((*hit)->tokens, 1605u);
  EXPECT_EQ((*hit)->tier, Tier::ssd);
}

TEST_F(DemotesTest, WhatIsNotThereIsMissing) {
  const DemoteReply reply = demote(fresh(40));
  EXPECT_EQ(reply.outcome, Outcome::missing);
  EXPECT_EQ(reply.tokens, 0u);
}

TEST_F(DemotesTest, WhatIsOnlyInRamWaitsForTheSsd) {
  const auto tokens = stored_in_ram(fresh(40));
  EXPECT_EQ(demote(plus_one(tokens)).outcome, Outcome::deferred);
  EXPECT_EQ(in_ram(), 3u);
  core().hangs = false;
  core().run_all();
  EXPECT_EQ(in_ram(), 0u);
  EXPECT_EQ(core().index.tiers().ssd().size(), 3u);
}

TEST_F(DemotesTest, WhatOthersGoOnFromStays) {
  auto tokens = stored(fresh(40));
  auto other = tokens;
  other.resize(32);
  const auto more = fresh(8);
  other.insert(other.end(), more.begin(), more.end());
  stored(other);
  const DemoteReply reply = demote(plus_one(tokens));
  EXPECT_EQ(reply.outcome, Outcome::clipped);
  EXPECT_NE(reply.reason.find("2 of 3 objects"), std::string::npos) << reply.reason;
  EXPECT_EQ(in_ram(), 3u);
  EXPECT_EQ((*core().fetch(session_, plus_one(other)))->tier, Tier::ram);
  core().run_all();  // its lease is over
  EXPECT_EQ(demote(plus_one(other)).outcome, Outcome::accepted) << "nobody does any more";
  EXPECT_EQ(in_ram(), 0u);
}

TEST_F(DemotesTest, WhatIsPinnedStaysButForTheHoldThatAsks) {
  const auto tokens = stored(fresh(40));
  const uint64_t mine = hold(plus_one(tokens));
  EXPECT_EQ(demote(plus_one(tokens)).outcome, Outcome::rejected);
  const uint64_t yours = hold(plus_one(tokens));
  EXPECT_EQ(demote({}, mine).outcome, Outcome::rejected) << "the other one was promised it too";
  release(yours);
  EXPECT_EQ(demote({}, mine).outcome, Outcome::accepted);
  EXPECT_EQ(in_ram(), 0u);
  EXPECT_EQ(core().index.tiers().pins(), 3u) << "the SSD keeps it for the hold";
  release(mine);
}

// An object may be written while the batch that wrote it still pins it: for others of it the SSD
// was full, and they are tried again.
TEST_F(DemotesTest, WhatItsOwnSpillPinsLeavesWhenThatEnds) {
  const auto tokens = stored_in_ram(fresh(5));  // a tail
  EXPECT_EQ(demote(plus_one(tokens)).outcome, Outcome::deferred);
  Record* tail = core().records.first(Disk::writing);
  ASSERT_NE(tail, nullptr);
  core().records.written(*tail, Durability::spilled, 4096);
  core().demotes.go_on();
  EXPECT_EQ(in_ram(), 1u) << "its bytes are being written";
  EXPECT_EQ(demote(plus_one(tokens)).outcome, Outcome::deferred) << "not pinned by anybody else";
  core().hangs = false;
  core().run_all();
  EXPECT_EQ(in_ram(), 0u);
}

TEST_F(DemotesTest, AHitThatIsPinnedMeanwhileStays) {
  const auto tokens = stored_in_ram(fresh(40));
  EXPECT_EQ(demote(plus_one(tokens)).outcome, Outcome::deferred);
  const uint64_t held = hold(plus_one(tokens));
  core().hangs = false;
  core().run_all();
  EXPECT_EQ(in_ram(), 3u);
  release(held);
}

TEST_F(DemotesTest, WithoutAnSsdNothingLeaves) {
  core_ = std::make_unique<CoreOwners>(small_options());
  core_->open_model();
  session_ = core_->connect();
  const auto tokens = stored(fresh(40), Durability::accepted);
  const DemoteReply reply = demote(plus_one(tokens));
  EXPECT_EQ(reply.outcome, Outcome::rejected);
  EXPECT_EQ(reply.reason, "there is no SSD");
  EXPECT_EQ(in_ram(), 3u);
}

}  // namespace
}  // namespace kv
