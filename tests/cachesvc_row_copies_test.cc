// Row copies by themselves: window rows and carries that an entry copies from those before it.
#include "cachesvc/core/row_copies.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class RowCopiesTest : public ::testing::Test {
 protected:
  void open(const std::vector<PartSpec>& parts) {
    core_ = std::make_unique<CoreOwners>(small_options());
    std::vector<LayerSpec> layers;
    for (const PartSpec& part : parts) layers.push_back(LayerSpec{{part}});
    core_->open_model(model_of(layers));
    session_ = core_->connect();
  }
  // The longer prompt's reservation, and what it could take over of what is stored.
  std::vector<CopyPut> copies(const std::vector<Token>& tokens) {
    auto reply = core_->reserve(session_, tokens);
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    reply_ = *reply;
    return row_copies(core_->index, *core_->reservations.find(session_, reply->reservation));
  }
  std::unique_ptr<CoreOwners> core_;
  std::mt19937 rng_{13};
  uint64_t session_ = 0;
  ReserveReply reply_;
};

TEST_F(RowCopiesTest, NothingWithoutSupplements) {
  open({full_part()});
  const auto tokens = random_tokens(rng_, 40);
  core_->store(session_, slice(tokens, 0, 24));
  EXPECT_TRUE(copies(tokens).empty());
}

// A turn of a chat supersedes the tail before it, and takes its rows.
TEST_F(RowCopiesTest, RowsOfASupersededTailAreCopiedOnceEach) {
  open({full_part(), window_part(20, 0)});
  const auto tokens = random_tokens(rng_, 40);
  core_->store(session_, slice(tokens, 0, 24));
  std::set<uint32_t> rows;
  for (const CopyPut& source : copies(tokens)) {
    EXPECT_EQ(source.put.object.name.kind, ObjectKind::supplement);
    for (const CopyRows& copy : source.put.copies) {
      EXPECT_LE(copy.end_row, 24u) << "what the tail has";
      for (uint32_t r = copy.first_row; r < copy.end_row; ++r) {
        EXPECT_TRUE(rows.insert(r).second) << "row " << r << " twice";
      }
    }
  }
  for (uint32_t r = 16; r < 24; ++r) EXPECT_TRUE(rows.count(r)) << "row " << r;
}

// Rows that were copied need not be put: a commit without them is whole.
TEST_F(RowCopiesTest, ACommitTakesOverWhatItsClientWasNotAskedFor) {
  open({full_part(), window_part(20, 0)});
  const auto tokens = random_tokens(rng_, 40);
  core_->store(session_, slice(tokens, 0, 39));
  core_->store(session_, tokens);
  EXPECT_GT(core_->env->count.copied_supplements, 0u);
  auto hit = core_->fetch(session_, plus_one(tokens));
  ASSERT_TRUE(hit && hit->ok());
  EXPECT_EQ((*hit)->tokens, 40u);
}

TEST_F(RowCopiesTest, RowsBeyondTheCommonPrefixAreAnothersAndStay) {
  open({full_part(), window_part(20, 0)});
  auto tokens = random_tokens(rng_, 40);
  core_->store(session_, tokens);
  tokens[20] += 1;
  for (const CopyPut& source : copies(tokens)) {
    for (const CopyRows& copy : source.put.copies) EXPECT_LE(copy.end_row, 20u);
  }
}

// A block that completes takes the carries of the tail that it supersedes.
TEST_F(RowCopiesTest, CarriesOfASupersededTailGoToTheBlockThatCompletes) {
  open({full_part(), pooled_part(4, true)});
  const auto tokens = random_tokens(rng_, 40);
  core_->store(session_, slice(tokens, 0, 26));
  bool carries = false;
  for (const CopyPut& source : copies(tokens)) {
    if (!source.states_of) continue;
    carries = true;
    EXPECT_EQ(source.put.object.states.size(), source.states_of->states.size());
  }
  EXPECT_TRUE(carries);
}

// The reserve decides what an entry takes over: a tail that came later keeps its rows, and its turn
// to go stays its own.
TEST_F(RowCopiesTest, ATailStoredSinceTheReserveIsNotSuperseded) {
  open({full_part(), window_part(20, 0)});
  const auto tokens = random_tokens(rng_, 40);
  auto reply = core_->reserve(session_, tokens);
  ASSERT_TRUE(reply.ok());
  core_->store(session_, slice(tokens, 0, 24));
  core_->put(session_, tokens, *reply);
  core_->commit(session_, *reply);
  EXPECT_EQ(core_->env->count.superseded_tails, 0u);
  for (size_t n : {24u, 40u}) {
    auto hit = core_->fetch(session_, plus_one(slice(tokens, 0, n)));
    ASSERT_TRUE(hit && hit->ok());
    EXPECT_EQ((*hit)->tokens, n);
  }
  core_->store(session_, plus_one(tokens));
  EXPECT_EQ(core_->env->count.superseded_tails, 2u) << "the next turn knows both";
}

}  // namespace
}  // namespace kv
