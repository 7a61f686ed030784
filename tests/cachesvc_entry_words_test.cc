// Words of a client about an entry, a label and what its prefill cost: kept with the entry's last
// object, known after a restart, and counted when a hit saves it.
#include "cachesvc/core/entry_record.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class EntryWordsTest : public ::testing::Test {
 protected:
  EntryWordsTest() { start(); }
  void start() {
    core_.reset();
    core_ = std::make_unique<CoreOwners>(small_options(dir_.store()));
    core_->open_model();
    core_->run_all();
    session_ = core_->connect();
  }
  Status store(const std::vector<Token>& tokens, EntryWords words,
               Durability level = Durability::durable) {
    const ReserveRequest request{1, core_->model->realm->realm.profile, {tokens, {}}, {}, words};
    auto reserved = core_->call<Result<ReserveReply>>(
        [&](auto done) { core_->reservations.reserve(session_, request, soon(), done); });
    KV_RETURN_IF_ERROR(reserved->status());
    core_->put(session_, tokens, **reserved);
    core_->commit(session_, **reserved, level);
    return {};
  }
  EntryWords said(const std::vector<Token>& tokens) {
    RealmState& realm = *core_->index.realms().find(core_->model->realm->realm);
    const Record* last = realm.nodes.at(realm.tree.find_path(tokens, {}).back()).main;
    return last && last->wishes.words ? *last->wishes.words : EntryWords();
  }

  TempDir dir_;
  std::mt19937 rng_{81};
  std::unique_ptr<CoreOwners> core_;
  uint64_t session_ = 0;
};

TEST_F(EntryWordsTest, StayWithTheLastObjectUntilOthersAreSaidAndAfterARestart) {
  const auto tail = random_tokens(rng_, 40), block = random_tokens(rng_, 32);
  ASSERT_TRUE(store(tail, {700, "chat 17"}).ok());
  ASSERT_TRUE(store(block, {50, ""}).ok());
  EXPECT_EQ(said(tail), (EntryWords{700, "chat 17"}));
  EXPECT_EQ(said({block.begin(), block.begin() + 16}), EntryWords()) << "no end of an entry";
  ASSERT_TRUE(store(tail, {}).ok());
  EXPECT_EQ(said(tail), (EntryWords{700, "chat 17"})) << "who says nothing changes nothing";
  ASSERT_TRUE(store(block, {60, "gréen ☕"}).ok());  // on the SSD already
  start();
  EXPECT_EQ(said(tail), (EntryWords{700, "chat 17"}));
  EXPECT_EQ(said(block), (EntryWords{60, "gréen ☕"}));
  EXPECT_EQ(core_->env->count.prefill_ms_told, 0u);
}

TEST_F(EntryWordsTest, OfAHitCountWhatItSaved) {
  const auto tokens = random_tokens(rng_, 40);
  ASSERT_TRUE(store(tokens, {400, "x"}, Durability::accepted).ok());
  EXPECT_EQ(core_->env->count.prefill_ms_told, 400u);
  core_->fetch(session_, plus_one(tokens));
  EXPECT_EQ(core_->env->count.prefill_ms_saved, 400u);
  core_->fetch(session_, tokens);  // 39 of 40
  EXPECT_EQ(core_->env->count.prefill_ms_saved, 790u);
  auto other = tokens;
  other[32] = -1;  // leaves it before its last object
  core_->fetch(session_, other);
  EXPECT_EQ(core_->env->count.prefill_ms_saved, 790u);
}

// By what clients told of both models, beside each other.
TEST_F(EntryWordsTest, WhatIsCheapToComputeGoesBeforeWhatWasUsedWithIt) {
  RealmState& cheap = *core_->model->realm;
  ModelSpec other = plain_model();
  other.fingerprint.bytes[0] ^= 1;
  RealmState& dear = core_->open_model(other);
  std::vector<Record*> of_cheap, of_dear;
  for (int i = 0; i < 40; ++i) {
    of_cheap.push_back(&core_->give_block(cheap));
    of_dear.push_back(&core_->give_block(dear));
  }
  Tiers& tiers = core_->index.tiers();
  auto use_both = [&] {
    tiers.touch({of_dear[0]});
    tiers.touch({of_cheap[0]});
    const EvictionOrder& order = tiers.ram_of(*of_dear[0]);
    return order.recency(of_cheap[0]->key) > order.recency(of_dear[0]->key);
  };
  EXPECT_TRUE(use_both()) << "nobody has told anything";
  for (int i = 0; i < 40; ++i) {
    ASSERT_TRUE(say(*core_->env, *of_cheap[0], {10u + static_cast<uint32_t>(i % 2), ""}));
    tiers.told_cost(*of_cheap[0]);
  }
  EXPECT_TRUE(use_both()) << "alone it is neither cheap nor dear";
  for (int i = 0; i < 40; ++i) {
    tiers.told_cost(*of_cheap[0]);
    (void)say(*core_->env, *of_dear[0], {100u, ""});
    tiers.told_cost(*of_dear[0]);
  }
  EXPECT_FALSE(use_both());
}

TEST_F(EntryWordsTest, AreChargedToTheIndexOnce) {
  const auto tokens = random_tokens(rng_, 40);
  ASSERT_TRUE(store(tokens, {}, Durability::accepted).ok());
  core_->run_all();
  const uint64_t before = core_->env->pool->used_bytes(ChargeKind::index);
  const std::string label(kMaxLabelBytes, 'a');
  ASSERT_TRUE(store(tokens, {1, label}, Durability::accepted).ok());
  core_->run_all();
  const uint64_t after = core_->env->pool->used_bytes(ChargeKind::index);
  EXPECT_GE(after, before + label.size());
  ASSERT_TRUE(store(tokens, {2, label}, Durability::accepted).ok());
  core_->run_all();
  EXPECT_EQ(core_->env->pool->used_bytes(ChargeKind::index), after);
}

TEST_F(EntryWordsTest, ThatAreNoTextForPeopleAreRefused) {
  const auto tokens = random_tokens(rng_, 40);
  const std::string long_one(kMaxLabelBytes + 1, 'a');
  for (const std::string& label : {long_one, std::string("a\nb"), std::string("\xff")}) {
    const Status status = store(tokens, {0, label});
    EXPECT_EQ(status.code(), StatusCode::invalid_argument);
    EXPECT_EQ(status.message().find("label"), 0u) << status.message();
  }
}

}  // namespace
}  // namespace kv
