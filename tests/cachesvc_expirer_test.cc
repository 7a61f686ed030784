// Times at which objects go: who gets one, what takes it away, that it is kept over a restart, and
// what a clock that is set does to it.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

using std::chrono::seconds;

class ExpirerTest : public ::testing::Test {
 protected:
  ExpirerTest() { start(); }
  void start() {
    core_.reset();
    CacheOptions options = small_options(dir_.store());
    options.wall_clock = [this] {
      return std::chrono::system_clock::time_point(seconds(wall_.load()));
    };
    core_ = std::make_unique<CoreOwners>(options);
    core_->open_model();
    core_->run_all();
    core_->expirer.begin();
    session_ = core_->connect();
  }
  std::vector<Token> stored(std::vector<Token> tokens, Durability level = Durability::durable) {
    core_->store(session_, tokens, level);
    return tokens;
  }
  ExpireReply expire(const std::vector<Token>& tokens, int64_t time, bool whole = false) {
    const ExpireRequest request{1, {tokens, {}}, {}, whole, seconds(time)};
    auto reply = core_->call<Result<ExpireReply>>(
        [&](auto done) { core_->expirer.expire(session_, request, soon(), done); });
    KV_CHECK(reply && reply->ok());
    return std::move(**reply);
  }
  /// The wall clock goes on, and the core looks at it.
  void pass(int64_t time) {
    wall_ += time;
    core_->expirer.begin();
    core_->run_for(Milliseconds(20));
    core_->run_all();
  }
  uint32_t served(const std::vector<Token>& tokens) {
    auto hit = core_->fetch(session_, plus_one(tokens));
    return hit && hit->ok() ? (*hit)->tokens : UINT32_MAX;
  }
  size_t times() {
    size_t all = 0;
    for (const auto& realm : core_->index.realms().all()) {
      for (const auto& node : realm->nodes) all += node.main && node.main->wishes.expiry;
    }
    return all;
  }
  std::vector<Token> fresh(size_t n) { return random_tokens(rng_, n); }
  std::vector<Token> on(std::vector<Token> tokens, size_t keep, size_t more) {
    tokens.resize(keep);
    const auto end = fresh(more);
    tokens.insert(tokens.end(), end.begin(), end.end());
    return tokens;
  }

  // Behind the times of the files.
  std::atomic<int64_t> wall_ =
      std::chrono::duration_cast<seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count() +
      86'400;
  TempDir dir_;
  std::mt19937 rng_{91};
  std::unique_ptr<CoreOwners> core_;
  uint64_t session_ = 0;
};

TEST_F(ExpirerTest, AnEntryGoesFromBothTiersAndWhatOthersHaveStays) {
  const auto one = stored(fresh(40)), other = stored(on(one, 16, 30));
  const ExpireReply reply = expire(one, 100);
  EXPECT_EQ(reply.outcome, Outcome::accepted);
  EXPECT_EQ(reply.objects, 2u);
  pass(99);
  EXPECT_EQ(served(one), 40u);
  core_->run_all();
  pass(2);
  EXPECT_EQ(served(one), 16u);
  EXPECT_EQ(served(other), 46u);
  EXPECT_EQ(core_->env->count.expired_objects, 2u);
  start();
  EXPECT_EQ(served(one), 16u) << "their files are gone";
}

TEST_F(ExpirerTest, AllThatBeginsSoGoes) {
  const auto one = stored(fresh(40)), other = stored(on(one, 16, 30)), third = stored(fresh(20));
  EXPECT_EQ(expire({one.begin(), one.begin() + 5}, 10, true).objects, 5u);
  pass(11);
  EXPECT_EQ(served(one), 0u);
  EXPECT_EQ(served(other), 0u);
  EXPECT_EQ(served(third), 20u);
}

TEST_F(ExpirerTest, TimesAreKeptOverARestartAndPassMeanwhile) {
  const auto one = stored(fresh(40)), other = stored(fresh(40));
  const auto in_ram = stored(fresh(40), Durability::accepted);
  expire(one, 100);
  expire(other, 1000);
  expire(in_ram, 1000);
  core_->spiller.ask_for_all();
  core_->run_all();
  core_->run_for(Milliseconds(20));
  wall_ += 200;
  start();
  pass(0);
  EXPECT_EQ(served(one), 0u);
  EXPECT_EQ(served(other), 40u);
  core_->run_all();
  pass(1000);
  EXPECT_EQ(served(other), 0u);
  EXPECT_EQ(served(in_ram), 0u) << "it took its time along";
}

TEST_F(ExpirerTest, AStoreThatGoesOnTakesTheTimesAway) {
  const auto turn = stored(fresh(40));
  expire(turn, 100);
  EXPECT_EQ(times(), 3u);
  const auto longer = stored(on(turn, 40, 30));
  EXPECT_EQ(times(), 1u) << "but not the turn's own tail's";
  start();
  EXPECT_EQ(times(), 1u);
  pass(200);
  EXPECT_EQ(served(longer), 70u);
}

TEST_F(ExpirerTest, TimeZeroTakesThemAwayAndALaterOneCounts) {
  const auto tokens = stored(fresh(40));
  expire(tokens, 10);
  expire(tokens, 100);
  pass(50);
  EXPECT_EQ(served(tokens), 40u);
  core_->run_all();
  EXPECT_EQ(expire(tokens, 0).outcome, Outcome::accepted);
  EXPECT_EQ(times(), 0u);
  start();
  pass(1000);
  EXPECT_EQ(served(tokens), 40u);
}

TEST_F(ExpirerTest, AClockThatIsSetCountsFromThenOn) {
  const auto tokens = stored(fresh(40));
  expire(tokens, 100);
  pass(-1'000'000);
  EXPECT_EQ(served(tokens), 40u);
  core_->run_all();
  pass(1'000'101);
  EXPECT_EQ(served(tokens), 0u);
}

TEST_F(ExpirerTest, WhatIsNotThereIsMissingAndTimesAreChargedAndGivenBack) {
  EXPECT_EQ(expire(fresh(40), 10).outcome, Outcome::missing);
  const auto tokens = stored(fresh(40));
  const uint64_t before = core_->env->pool->used_bytes(ChargeKind::index);
  expire(tokens, 10);
  EXPECT_EQ(core_->env->pool->used_bytes(ChargeKind::index), before + 3 * Expiries::kBytes);
  expire(tokens, 20);
  EXPECT_EQ(core_->env->pool->used_bytes(ChargeKind::index), before + 3 * Expiries::kBytes);
  expire(tokens, 0);
  EXPECT_EQ(core_->env->pool->used_bytes(ChargeKind::index), before);
}

}  // namespace
}  // namespace kv
