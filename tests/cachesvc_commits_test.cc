// Commits by themselves: a commit's turn. How its objects become visible:
// cachesvc_publications_test.cc.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class CommitsTest : public ::testing::Test {
 protected:
  CommitsTest() : core_(small_options()) {
    core_.open_model();
    session_ = core_.connect();
  }
  ReserveReply put_all(const std::vector<Token>& tokens, size_t but = 0) {
    auto reserved = core_.reserve(session_, tokens);
    EXPECT_TRUE(reserved.ok());
    core_.put(session_, tokens, *reserved, but);
    return *reserved;
  }
  void begin(uint64_t reservation) {
    core_.commits.commit(session_, reservation, Durability::accepted, soon(),
                         [this](Result<CommitReply> r) { reply_.emplace(std::move(r)); });
  }
  CoreOwners core_;
  std::mt19937 rng_{6};
  uint64_t session_ = 0;
  std::optional<Result<CommitReply>> reply_;
};

TEST_F(CommitsTest, MakesWhatWasPutVisibleAndEndsTheReservation) {
  const auto tokens = random_tokens(rng_, 40);
  begin(put_all(tokens).reservation);
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(core_.index.size(), 3u);
  EXPECT_EQ(core_.reservations.size(), 0u);
}

TEST_F(CommitsTest, WaitsForPutsThatAreUnderWay) {
  const auto tokens = random_tokens(rng_, 16);
  auto reserved = core_.reserve(session_, tokens);
  ASSERT_TRUE(reserved.ok());
  auto put =
      make_put(*core_.model->realm->model, 16, tokens, reserved->needs[0], reserved->reservation);
  core_.puts.put(session_, std::move(put), nullptr, soon(), [](Status) {});
  begin(reserved->reservation);
  EXPECT_FALSE(reply_);
  core_.run_all();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(core_.index.size(), 1u);
}

TEST_F(CommitsTest, OneThatLeftSomethingOutIsRefusedByNameAndNothingIsStored) {
  const auto tokens = random_tokens(rng_, 40);
  begin(put_all(tokens, 1).reservation);
  core_.run_all();
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->status().code(), StatusCode::invalid_argument);
  EXPECT_NE(reply_->status().message().find("[32, 40)"), std::string::npos)
      << reply_->status().message();
  EXPECT_EQ(core_.index.size(), 0u);
  EXPECT_EQ(core_.reservations.size(), 0u);
}

TEST_F(CommitsTest, WaitsWhileAnEraseOfItsNamespaceWaitsForAnother) {
  const ReserveReply reserved = put_all(random_tokens(rng_, 16));
  core_.eraser.publication_begins("test");
  auto erased = core_.call<Result<uint64_t>>(
      [&](auto done) { core_.eraser.erase(session_, 1, {}, soon(), done); });
  EXPECT_FALSE(erased);
  begin(reserved.reservation);
  EXPECT_FALSE(reply_);
  core_.eraser.publication_ends("test");
  core_.run_all();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(core_.index.size(), 1u) << "stored after the erase";
}

TEST_F(CommitsTest, AnUnknownReservationIsNotFound) {
  begin(77);
  ASSERT_TRUE(reply_);
  EXPECT_EQ(reply_->status().code(), StatusCode::not_found);
}

}  // namespace
}  // namespace kv
