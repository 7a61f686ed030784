// Publications by themselves: what becomes visible, and what the reply says of it. How others are
// served meanwhile: cachesvc_publications_whole_test.cc.
#include "cachesvc/core/publications.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class PublicationsUnit : public ::testing::Test {
 protected:
  explicit PublicationsUnit(SpillWhen when = SpillWhen::commit) : core_(options(when)) {
    core_.open_model();
    session_ = core_.connect();
  }
  CacheOptions options(SpillWhen when) {
    CacheOptions o = small_options(dir_.store());
    o.spill_when = when;
    return o;
  }
  // A reservation with all it lacks but the last `but`.
  uint64_t put_all(const std::vector<Token>& tokens, size_t but = 0) {
    auto reserved = core_.reserve(session_, tokens);
    EXPECT_TRUE(reserved.ok()) << reserved.status().to_string();
    core_.put(session_, tokens, *reserved, but);
    return reserved->reservation;
  }
  // Answer of the publication; objects that become visible at once have their place by then.
  std::shared_ptr<std::optional<Result<CommitReply>>> publish(
      uint64_t reservation, Durability level = Durability::accepted) {
    auto reply = std::make_shared<std::optional<Result<CommitReply>>>();
    auto call = core_.calls.begin<Result<CommitReply>>(
        session_, soon(), [reply](Result<CommitReply> r) { reply->emplace(std::move(r)); });
    core_.publications.publish(core_.reservations.take(reservation), level, call);
    return reply;
  }
  TempDir dir_;
  CoreOwners core_;
  std::mt19937 rng_{41};
  uint64_t session_ = 0;
};

struct PublicationsWithoutSpills : PublicationsUnit {
  PublicationsWithoutSpills() : PublicationsUnit(SpillWhen::evict) {}
};

TEST_F(PublicationsUnit, AShortEntryIsWholeAtOnceAndOnItsWayToTheSsd) {
  const auto tokens = random_tokens(rng_, 40);
  auto reply = publish(put_all(tokens));
  ASSERT_TRUE(*reply && (*reply)->ok());
  EXPECT_EQ((**reply)->level, Durability::accepted);
  EXPECT_TRUE((**reply)->lost.empty() && (**reply)->foreign.empty());
  EXPECT_EQ(core_.index.size(), 3u);
  EXPECT_GT(core_.records.lists().queue_bytes(), 0u);
  EXPECT_TRUE(core_.eraser.resting());
  EXPECT_EQ(core_.reservations.size(), 0u);
}

TEST_F(PublicationsWithoutSpills, OneIsSpilledIfItIsWaitedForThere) {
  auto reply = publish(put_all(random_tokens(rng_, 16)));
  ASSERT_TRUE(*reply && (*reply)->ok());
  EXPECT_EQ(core_.records.lists().count(Disk::absent), 1u) << "until RAM wants its room";
  auto spilled = publish(put_all(random_tokens(rng_, 16)), Durability::spilled);
  EXPECT_FALSE(*spilled);
  core_.run_all();
  ASSERT_TRUE(*spilled && (*spilled)->ok());
  EXPECT_GE((**spilled)->level, Durability::spilled);
  EXPECT_EQ(core_.records.lists().count(Disk::absent), 1u);
}

TEST_F(PublicationsUnit, OneThatLeftSomethingOutIsRefusedAndNothingOfItStays) {
  auto reply = publish(put_all(random_tokens(rng_, 40), 1));
  EXPECT_TRUE(core_.eraser.resting()) << "no erase waits for it";
  core_.run_all();
  ASSERT_TRUE(*reply);
  EXPECT_EQ((*reply)->status().code(), StatusCode::invalid_argument);
  EXPECT_EQ(core_.index.size(), 0u);
  EXPECT_EQ(core_.env->pool->used_bytes(ChargeKind::staging), 0u);
}

TEST_F(PublicationsUnit, WhatAnotherGaveFirstIsForeign) {
  const auto tokens = random_tokens(rng_, 16);
  const uint64_t first = put_all(tokens), second = put_all(tokens);
  publish(first);
  auto reply = publish(second);
  ASSERT_TRUE(*reply && (*reply)->ok());
  ASSERT_EQ((**reply)->foreign.size(), 1u);
  EXPECT_NE(core_.index.find((**reply)->foreign[0]), nullptr);
  EXPECT_EQ(core_.index.size(), 1u);
}

TEST_F(PublicationsUnit, WithoutWhatWasThereAtTheReserveTheEntryEndsBeforeIt) {
  const auto tokens = random_tokens(rng_, 48);
  core_.store(session_, slice(tokens, 0, 32));
  const uint64_t reservation = put_all(tokens);
  const Reservation& r = *core_.reservations.find(session_, reservation);
  const ObjectName second = r.block_name(1), third = r.block_name(2);
  core_.records.remove(*core_.index.find(second));
  auto reply = publish(reservation);
  ASSERT_TRUE(*reply && (*reply)->ok());
  EXPECT_EQ((**reply)->lost, std::vector{second});
  EXPECT_EQ(core_.index.find(third), nullptr) << "nothing leads to it";
  EXPECT_EQ(core_.index.size(), 1u);
}

// Between its first step and its last one erases wait.
TEST_F(PublicationsUnit, ALongEntryTakesSteps) {
  const auto tokens =
      random_tokens(rng_, 16 * (2 * static_cast<size_t>(Publications::kObjectsPerStep)));
  auto reply = publish(put_all(tokens));
  EXPECT_FALSE(*reply);
  EXPECT_EQ(core_.index.size(), 0u);
  EXPECT_FALSE(core_.eraser.resting());
  core_.run_all();
  ASSERT_TRUE(*reply && (*reply)->ok());
  EXPECT_EQ(core_.index.size(), 2 * Publications::kObjectsPerStep);
  EXPECT_TRUE(core_.eraser.resting());
}

}  // namespace
}  // namespace kv
