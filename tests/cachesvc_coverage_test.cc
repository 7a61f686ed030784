// Coverage by itself: what a store still lacks, what it has lost, and what its entry consists of.
#include "cachesvc/core/coverage.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class CoverageTest : public ::testing::Test {
 protected:
  CoverageTest() : core_(small_options()) {
    core_.open_model(model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(20, 2)}}}));
    session_ = core_.connect();
  }
  const Reservation& reserve(const std::vector<Token>& tokens) {
    auto reply = core_.reserve(session_, tokens);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    reply_ = *reply;
    return *core_.reservations.find(session_, reply->reservation);
  }
  Gap gap(const Reservation& r) {
    Gap blocks = check_blocks(core_.index, r);
    return blocks.status.ok() ? check_coverage(r, serving_) : blocks;
  }

  CoreOwners core_;
  std::mt19937 rng_{12};
  uint64_t session_ = 0;
  ReserveReply reply_;
  std::optional<std::vector<PinnedName>> serving_;
};

TEST_F(CoverageTest, TheFirstMissingBlockIsNamedWithTheTokensAboveIt) {
  const auto tokens = random_tokens(rng_, 56);
  core_.store(session_, slice(tokens, 0, 16));
  const Reservation& r = reserve(tokens);
  const Gap none = gap(r);
  EXPECT_EQ(none.name, r.block_name(1));
  EXPECT_EQ(none.tokens_above, 16u);
  EXPECT_NE(none.status.message().find("[16, 32)"), std::string::npos) << none.status.message();
}

TEST_F(CoverageTest, AllThatWasAskedForIsEnough) {
  const auto tokens = random_tokens(rng_, 56);
  const Reservation& r = reserve(tokens);
  EXPECT_TRUE(left_out(r));
  core_.put(session_, tokens, reply_);
  EXPECT_TRUE(gap(r).status.ok()) << gap(r).status.to_string();
  EXPECT_FALSE(left_out(r));
  EXPECT_TRUE(serving_ && serving_->empty()) << "nothing of it was stored before";
}

TEST_F(CoverageTest, TheCheckFindsWhatIsStoredOfTheEntry) {
  const auto tokens = random_tokens(rng_, 56);
  core_.store(session_, slice(tokens, 0, 32));
  const Reservation& r = reserve(tokens);
  core_.put(session_, tokens, reply_);
  EXPECT_TRUE(gap(r).status.ok()) << gap(r).status.to_string();
  ASSERT_TRUE(serving_);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_TRUE(std::any_of(serving_->begin(), serving_->end(), [&](const PinnedName& name) {
      return name.name == r.block_name(i);
    })) << i;
  }
}

// Blocks alone serve no window: its rows are wanting, by layer and part.
TEST_F(CoverageTest, MissingWindowRowsAreNamedByLayerAndPart) {
  const auto tokens = random_tokens(rng_, 56);
  const Reservation& r = reserve(tokens);
  std::erase_if(reply_.needs, [](const Need& n) { return n.kind == ObjectKind::supplement; });
  core_.put(session_, tokens, reply_);
  const Gap rows = gap(r);
  EXPECT_EQ(rows.status.code(), StatusCode::invalid_argument);
  EXPECT_NE(rows.status.message().find("layer 1 part 0 (window)"), std::string::npos)
      << rows.status.message();
  EXPECT_EQ(rows.name.kind, ObjectKind::supplement);
  EXPECT_TRUE(left_out(r));
}

TEST_F(CoverageTest, ABlockThatHasGoneSinceTheReserveIsLostWithAllAfterIt) {
  const auto tokens = random_tokens(rng_, 56);
  core_.store(session_, tokens);
  const Reservation& r = reserve(tokens);
  CommitReply reply;
  EXPECT_EQ(find_lost(core_.index, r, reply), 56u);
  core_.records.remove(*core_.index.find(r.block_name(2)));
  EXPECT_EQ(find_lost(core_.index, r, reply), 32u);
  EXPECT_EQ(reply.lost, std::vector<ObjectName>{r.block_name(2)});
}

TEST_F(CoverageTest, ThePathIsRootFirstAndHasAllThatServesIt) {
  const auto tokens = random_tokens(rng_, 56);
  core_.store(session_, tokens);
  const Reservation& r = reserve(tokens);
  const std::vector<PinnedName> path = path_of(core_.index, r, serving(r, 56));
  ASSERT_GE(path.size(), 5u) << "three blocks, a tail, window rows";
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(path[i].name, r.block_name(i));
  EXPECT_EQ(path[3].name, r.tail_name());
  for (size_t i = 4; i < path.size(); ++i) {
    EXPECT_EQ(path[i].name.kind, ObjectKind::supplement);
  }
}

}  // namespace
}  // namespace kv
