// Attached against every record that hangs there: each walk finds what a look at all of them finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "cachesvc/core/attached.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

constexpr uint32_t kNodeEnd = 8;

// Snapshots after one node, few tokens and fewer extras apart, and two supplements of the node.
class Hanging {
 public:
  explicit Hanging(uint32_t seed) : rng_(seed) {
    for (uint32_t row : {1u, 2u}) attached.add(supplement(row));
  }

  struct Sequence {
    std::vector<Token> tokens;
    std::vector<Extra> extras;
    Symbols symbols() const { return {kNodeEnd, tokens, extras}; }
  };
  Sequence sequence(size_t most_tokens) {
    Sequence out;
    const size_t n = rng_() % (most_tokens + 1);
    for (size_t i = 0; i < n; ++i) {
      out.tokens.push_back(static_cast<Token>(rng_() % 2));
      if (rng_() % 8 == 0) {
        out.extras.push_back(
            {static_cast<uint32_t>(kNodeEnd + i), {static_cast<uint8_t>(rng_() % 2)}});
      }
    }
    return out;
  }
  void add_or_remove() {
    const Sequence its = sequence(5);
    auto known = std::find_if(snapshots.begin(), snapshots.end(), [&](const Record* r) {
      return r->attachment->tokens == its.tokens && r->attachment->extras == its.extras;
    });
    if (known != snapshots.end()) {
      attached.remove(**known);
      snapshots.erase(known);
      return;
    }
    Record& r = records_.emplace_back();
    r.name.kind = ObjectKind::snapshot;
    r.attachment = std::make_unique<Attachment>();
    r.attachment->tokens = its.tokens;
    r.attachment->extras = its.extras;
    r.attachment->position = kNodeEnd + static_cast<uint32_t>(its.tokens.size());
    attached.add(r);
    snapshots.push_back(&r);
  }
  // Symbol by symbol, a token and the extras at its position.
  static uint32_t common(const Record& snapshot, const Sequence& query) {
    const Attachment& own = *snapshot.attachment;
    auto at = [](const std::vector<Extra>& extras, uint32_t position) {
      std::vector<std::vector<uint8_t>> out;
      for (const Extra& e : extras) {
        if (e.position == position) out.push_back(e.bytes);
      }
      return out;
    };
    uint32_t i = 0;
    while (i < own.tokens.size() && i < query.tokens.size() && own.tokens[i] == query.tokens[i] &&
           at(own.extras, kNodeEnd + i) == at(query.extras, kNodeEnd + i)) {
      ++i;
    }
    return i;
  }

  Attached attached;
  std::vector<Record*> snapshots;

 private:
  Record& supplement(uint32_t row) {
    Record& r = records_.emplace_back();
    r.name.kind = ObjectKind::supplement;
    r.name.first_row = row;
    r.attachment = std::make_unique<Attachment>();
    return r;
  }

  std::mt19937 rng_;
  std::deque<Record> records_;
};

std::vector<Record*> sorted(std::vector<Record*> records) {
  std::sort(records.begin(), records.end());
  return records;
}

TEST(Attached, WalksFindWhatALookAtAllFinds) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Hanging hanging(seed);
    const Attached& attached = hanging.attached;
    for (int step = 0; step < 300; ++step) {
      hanging.add_or_remove();
      ASSERT_EQ(attached.snapshots(), hanging.snapshots.size());
      const auto query = hanging.sequence(7);
      std::vector<Record*> on, behind;
      uint32_t longest = 0;
      for (Record* r : hanging.snapshots) {
        const uint32_t common = Hanging::common(*r, query);
        longest = std::max(longest, common);
        if (common == r->attachment->tokens.size()) on.push_back(r);
        if (common == query.tokens.size()) behind.push_back(r);
      }
      const std::vector<Record*> found = attached.snapshots_on(query.symbols());
      ASSERT_EQ(sorted(found), sorted(on));
      ASSERT_TRUE(
          std::is_sorted(found.rbegin(), found.rend(), [](const Record* a, const Record* b) {
            return a->attachment->position < b->attachment->position;
          }));
      ASSERT_EQ(attached.longest_common(query.symbols()), longest);
      std::vector<Record*> all, few;
      attached.snapshots_beginning_with(query.symbols(), SIZE_MAX, all);
      ASSERT_EQ(sorted(all), sorted(behind));
      attached.snapshots_beginning_with(query.symbols(), 2, few);
      ASSERT_EQ(few.size(), std::min<size_t>(2, behind.size()));
    }
  }
}

// As a file may have one that another program wrote.
TEST(Attached, ASnapshotOfNoProperSequenceHangsNowhere) {
  CoreOwners c(small_options());
  RealmState& realm = c.open_model(model_of({LayerSpec{{state_part(SnapshotPlace::checkpoint)}}}));
  Object object;
  object.name.kind = ObjectKind::snapshot;
  auto added = [&](std::vector<Token> tokens, std::vector<Extra> extras) {
    object.name.id.bytes[0] += 1;
    object.tokens = std::move(tokens);
    object.extras = std::move(extras);
    Record* r = c.index.add(realm, object, Charge());
    if (r) c.index.remove(*r);  // it is in no tier
    return r != nullptr;
  };
  const std::vector<Token> five{1, 2, 3, 4, 5};
  EXPECT_TRUE(added(five, {{1, {7}}, {3, {7}}}));
  EXPECT_FALSE(added(five, {{3, {7}}, {1, {7}}})) << "extras out of order";
  EXPECT_FALSE(added(five, {{5, {7}}})) << "an extra behind its tokens";
  EXPECT_FALSE(added(std::vector<Token>(realm.block_tokens()), {})) << "a whole block";
}

TEST(Attached, ListsBothKindsAsManyAsAreAskedFor) {
  Hanging hanging(1);
  while (hanging.snapshots.size() < 3) hanging.add_or_remove();
  std::vector<Record*> all;
  hanging.attached.list(SIZE_MAX, all);
  EXPECT_EQ(all.size(), 5u);
  for (Record* r : hanging.attached.supplements())
    EXPECT_EQ(std::count(all.begin(), all.end(), r), 1);
  for (size_t most = 0; most <= 5; ++most) {
    std::vector<Record*> some;
    hanging.attached.list(most, some);
    EXPECT_EQ(some.size(), most);
  }
  for (Record* r : all) hanging.attached.remove(*r);
  EXPECT_TRUE(hanging.attached.empty());
}

}  // namespace
}  // namespace kv
