// Ends by themselves: which end a supplement serves, and that a superseded tail goes first.
#include "cachesvc/core/ends_search.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class EndsUnit : public ::testing::Test {
 protected:
  EndsUnit() : core_(small_options()) {
    core_.open_model(model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(10, 3)}}}));
    session_ = core_.connect();
  }
  std::vector<Record*> all_of(ObjectKind kind) {
    std::vector<Record*> out;
    for (Disk state : {Disk::absent, Disk::waiting, Disk::queued}) {
      for (const Record& r : core_.records.lists().all(state)) {
        if (r.name.kind == kind) out.push_back(core_.index.find(r.name));
      }
    }
    return out;
  }
  ObjectName first_victim() {
    return core_.index.find_key(core_.index.tiers().ram().next_victims(1, true).keys.at(0))->name;
  }
  CoreOwners core_;
  std::mt19937 rng_{51};
  uint64_t session_ = 0;
};

TEST_F(EndsUnit, RowsOfAWindowServeTheEndBehindThem) {
  core_.store(session_, random_tokens(rng_, 40));
  size_t ours = 0;
  for (const Record* rows : all_of(ObjectKind::supplement)) {
    if (rows->name.end_row <= 3) {  // the window's sinks
      EXPECT_TRUE(serves_end(*rows, 40) && serves_end(*rows, 400));
      continue;
    }
    ++ours;
    EXPECT_TRUE(serves_end(*rows, 40)) << rows->name.first_row;
    EXPECT_FALSE(serves_end(*rows, 80)) << "they are out of its window";
  }
  EXPECT_GT(ours, 0u);
}

TEST_F(EndsUnit, ASupersededTailAndWhatHangsOnItGoFirst) {
  core_.store(session_, random_tokens(rng_, 8));
  auto older = all_of(ObjectKind::tail);
  const auto tokens = random_tokens(rng_, 24);
  core_.store(session_, tokens);
  ASSERT_EQ(older.size(), 1u);
  for (Record* tail : all_of(ObjectKind::tail)) {
    if (tail == older[0]) continue;
    EXPECT_NE(first_victim(), tail->name) << "used last";
    core_.ends.supersede(*tail);
    EXPECT_EQ(drop_urgency(*tail), kDropSuperseded);
    for (const Record* rows : tail->realm->nodes.at(tail->node).attached.supplements()) {
      EXPECT_EQ(drop_urgency(*rows), kDropSuperseded);
    }
    const NodeId gone = core_.index.find(first_victim())->node;
    EXPECT_EQ(gone, tail->node) << "the tail, or its rows";
  }
}

// Each kind of object goes, and others come, between two steps of a search.
TEST_F(EndsUnit, ASearchGoesOnWhileObjectsComeAndGo) {
  const auto shared = random_tokens(rng_, 32);
  auto store_one = [&] {
    auto tokens = shared;
    const auto own = random_tokens(rng_, 20);
    tokens.insert(tokens.end(), own.begin(), own.end());
    core_.store(session_, tokens);
  };
  for (int i = 0; i < 6; ++i) store_one();
  EndsSearch search(core_.index, core_.ends);
  size_t steps = 0;
  for (; search.step(3); ++steps) {
    constexpr ObjectKind kKinds[] = {ObjectKind::supplement, ObjectKind::tail, ObjectKind::block};
    const auto some = all_of(kKinds[steps % 3]);
    if (steps % 4 == 3) {
      store_one();
    } else if (!some.empty()) {
      core_.records.remove(*some[steps % some.size()]);
    }
    core_.check_invariants();
  }
  EXPECT_GT(steps, 6u);
  for (const Record* tail : all_of(ObjectKind::tail)) EXPECT_FALSE(tail->superseded);
}

// A commit between any two steps of a search marks its own, and the search leaves that alone.
TEST(EndsSearch, LeavesWhatACommitHasMarked) {
  std::mt19937 rng(52);
  const auto before = random_tokens(rng, 40), after = random_tokens(rng, 40);
  bool searched = true;
  for (size_t at = 0; searched; ++at) {
    CoreOwners core(small_options());
    core.open_model(
        model_of({LayerSpec{{full_part()}}, LayerSpec{{state_part(SnapshotPlace::checkpoint)}}}));
    const uint64_t session = core.connect();
    core.store(session, before);
    EndsSearch search(core.index, core.ends);
    for (size_t step = 0; step < at && searched; ++step) searched = search.step(1);
    core.store(session, after);
    while (search.step(1)) {
    }
    size_t serving = 0;
    for (const Record& r : core.records.lists().all(Disk::absent)) {
      if (r.name.kind == ObjectKind::snapshot && r.attachment->position == 40) {
        serving += r.attachment->end_distance == 0;
      }
    }
    EXPECT_EQ(serving, 2u) << "a commit before step " << at;
  }
}

// A start finds objects and no ends.
TEST_F(EndsUnit, ALongerTailIsFoundToSupersedeTheShorterOne) {
  const auto tokens = random_tokens(rng_, 24);
  core_.store(session_, slice(tokens, 0, 20));
  Record* shorter = all_of(ObjectKind::tail).at(0);
  core_.store(session_, tokens);
  EXPECT_TRUE(shorter->superseded);
  shorter->superseded = false;
  core_.index.tiers().reorder(*shorter);
  find_all_ends(core_.index, core_.ends);
  EXPECT_TRUE(shorter->superseded);
  for (const Record* tail : all_of(ObjectKind::tail)) {
    EXPECT_EQ(tail->superseded, tail == shorter);
  }
}

}  // namespace
}  // namespace kv
