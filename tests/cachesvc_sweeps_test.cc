// Sweeps by themselves: a namespace's files go, and what RAM has stays.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class SweepsTest : public ::testing::Test {
 protected:
  SweepsTest() : core_(small_options(dir_.store())) {
    core_.open_model();
    session_ = core_.connect();
  }
  std::vector<Token> stored(size_t n) {
    auto tokens = random_tokens(rng_, n);
    core_.store(session_, tokens, Durability::durable);
    return tokens;
  }
  Result<DemoteAllReply> clear_ssd() {
    auto reply = std::make_shared<std::optional<Result<DemoteAllReply>>>();
    core_.sweeps.clear_ssd(session_, soon(), [reply](auto r) { reply->emplace(std::move(r)); });
    for (int i = 0; i < 1000 && !*reply; ++i) core_.run_for(Milliseconds(1));
    return *reply ? std::move(**reply)
                  : Result<DemoteAllReply>(Status(StatusCode::busy, "no answer"));
  }
  // Out of RAM, onto the SSD alone.
  void demote_all() {
    auto reply = core_.call<Result<DemoteAllReply>>(
        [&](auto done) { core_.sweeps.demote(session_, soon(), done); });
    ASSERT_TRUE(reply && reply->ok());
    ASSERT_EQ(in_ram(), 0u);
  }
  void erase(const std::vector<Token>& tokens) {
    auto reply = core_.call<Result<uint64_t>>([&](auto done) {
      core_.eraser.erase_entry(session_, {1, {tokens, {}}}, soon(), done);
    });
    ASSERT_TRUE(reply && reply->ok());
  }
  uint32_t served(const std::vector<Token>& tokens) {
    auto reply = core_.fetch(session_, tokens);
    KV_CHECK(reply && reply->ok());
    return (*reply)->tokens;
  }
  size_t in_ram() { return core_.index.tiers().ram().size(); }
  size_t on_ssd() { return core_.index.tiers().ssd().size(); }

  TempDir dir_;
  std::mt19937 rng_{31};
  CoreOwners core_;
  uint64_t session_ = 0;
};

TEST_F(SweepsTest, FilesGoAndWhatRamHasStays) {
  const auto tokens = stored(16 * 100 + 5);  // more than one handler's objects
  const size_t all = on_ssd();
  ASSERT_EQ(all, 101u);
  auto reply = clear_ssd();
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->left, all);
  EXPECT_EQ(reply->stay, 0u);
  EXPECT_EQ(on_ssd(), 0u);
  EXPECT_EQ(in_ram(), all);
  EXPECT_EQ(core_.records.lists().count(Disk::refused), all) << "not written again by itself";
  EXPECT_EQ(served(tokens), tokens.size() - 1);
}

TEST_F(SweepsTest, WhatOnlyTheSsdHasIsLostAndMayBeStoredAgain) {
  const auto tokens = stored(16 * 3 + 5);
  demote_all();
  auto reply = clear_ssd();
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->left, 4u);
  EXPECT_EQ(core_.index.size(), 0u);
  EXPECT_EQ(served(tokens), 0u);
  core_.store(session_, tokens, Durability::durable);
  EXPECT_EQ(served(tokens), tokens.size() - 1);
}

// Numbers of nodes are used again, the last ones that were freed first: here the first blocks of an
// entry have higher ones than those after them, and are met later.
TEST_F(SweepsTest, AParentGoesAfterItsChildrenWhateverTheirNumbers) {
  const auto first = stored(16 * 2 + 5), second = stored(16 * 2 + 5);
  erase(first);
  erase(second);
  stored(16 * 5 + 5);
  demote_all();
  auto reply = clear_ssd();
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->left, 6u);
  EXPECT_EQ(reply->stay, 0u);
  EXPECT_EQ(core_.index.size(), 0u);
}

TEST_F(SweepsTest, BlocksBeforeAPinnedTailStay) {
  stored(16 * 3 + 5);
  demote_all();
  Record* tail = nullptr;
  for (const auto& node : core_.model->realm->nodes) {
    if (node.main && node.main->name.kind == ObjectKind::tail) tail = node.main;
  }
  ASSERT_TRUE(tail);
  const Pins pins(*core_.env, core_.index, {tail});
  auto reply = clear_ssd();
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->left, 0u);
  EXPECT_EQ(reply->stay, 4u);
  EXPECT_EQ(on_ssd(), 4u);
}

TEST_F(SweepsTest, HeldObjectsStay) {
  const auto held = stored(16 * 2 + 5), other = stored(16 * 2 + 5);
  auto hold = core_.call<Result<HoldReply>>([&](auto done) {
    core_.holds.hold(session_, {1, {held, {}}, {}, Milliseconds(60'000)}, soon(), done);
  });
  ASSERT_TRUE(hold && hold->ok());
  auto reply = clear_ssd();
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(reply->left, 3u);
  EXPECT_EQ(reply->stay, 3u);
  EXPECT_EQ(on_ssd(), 3u);
}

TEST_F(SweepsTest, AnothersFilesStay) {
  const uint64_t other = core_.connect("other");
  stored(16 + 5);
  const size_t before = on_ssd();
  auto reply = core_.call<Result<DemoteAllReply>>(
      [&](auto done) { core_.sweeps.clear_ssd(other, soon(), done); });
  ASSERT_TRUE(reply && reply->ok());
  EXPECT_EQ((*reply)->left, 0u);
  EXPECT_EQ(on_ssd(), before);
}

TEST(Sweeps, WithoutAnSsdTheyAreRefused) {
  CoreOwners core(small_options(""));
  core.open_model();
  const uint64_t session = core.connect();
  for (auto verb : {&Sweeps::demote, &Sweeps::clear_ssd}) {
    auto reply = core.call<Result<DemoteAllReply>>(
        [&](auto done) { (core.sweeps.*verb)(session, soon(), done); });
    ASSERT_TRUE(reply);
    EXPECT_EQ(reply->status().code(), StatusCode::unavailable);
    EXPECT_EQ(reply->status().message(), "there is no SSD");
  }
}

}  // namespace
}  // namespace kv
