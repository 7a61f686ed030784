// slice_rows and join_rows against a row-by-row oracle; ids pinned to bytes.
#include <gtest/gtest.h>

#include <map>

#include "tests/proto_random.h"

namespace kv {
namespace {

// A row as (form, the bytes of its vectors head by head, scales included): the oracle's view.
struct Row {
  RunForm form;
  std::vector<uint8_t> bytes;
  bool operator==(const Row&) const = default;
};

std::vector<Row> rows_of(const Plane& p) {
  std::vector<Row> rows;
  const uint8_t* at = p.bytes.data();
  for (const auto& run : p.runs) {
    for (uint32_t r = 0; r < run.rows; ++r) {
      Row row{run.form, {}};
      size_t exact = size_t{p.heads} * p.dim * dtype_bytes(p.dtype), coded = code_bytes(p.dim, p.bits);
      if (run.form == RunForm::exact) {
        row.bytes.assign(at + r * exact, at + (r + 1) * exact);
      } else {
        for (uint32_t h = 0; h < p.heads; ++h) {
          const uint8_t* c = at + (size_t{h} * run.rows + r) * coded;
          const uint8_t* s = at + p.heads * run.rows * coded + (size_t{h} * run.rows + r) * 2;
          row.bytes.insert(row.bytes.end(), c, c + coded);
          row.bytes.insert(row.bytes.end(), s, s + 2);
        }
      }
      rows.push_back(std::move(row));
    }
    at += run_bytes(p, run.form, run.rows);
  }
  return rows;
}

TEST(Plane, SliceTakesExactlyItsRows) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    Plane p = random_plane(random, pick(random, 0, 1000), pick(random, 1, 40));
    uint32_t a = pick(random, p.first_row, p.end_row()), b = pick(random, a, p.end_row());
    auto cut = slice_rows(p, a, b);
    ASSERT_TRUE(cut.ok()) << "seed " << seed;
    EXPECT_EQ(cut->first_row, a);
    EXPECT_EQ(cut->bytes.size(), plane_bytes(*cut));
    auto all = rows_of(p);
    std::vector<Row> expected(all.begin() + (a - p.first_row), all.begin() + (b - p.first_row));
    EXPECT_EQ(rows_of(*cut), expected) << "seed " << seed;
  }
}

TEST(Plane, JoinUndoesSlice) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Random random(seed);
    Plane p = random_plane(random, pick(random, 0, 1000), pick(random, 1, 40));
    std::vector<Plane> pieces;
    for (uint32_t at = p.first_row; at < p.end_row();) {
      uint32_t end = pick(random, at + 1, p.end_row());
      auto piece = slice_rows(p, at, end);
      ASSERT_TRUE(piece.ok());
      pieces.push_back(std::move(*piece));
      at = end;
    }
    auto whole = join_rows(pieces);
    ASSERT_TRUE(whole.ok()) << "seed " << seed;
    EXPECT_EQ(whole->runs, p.runs) << "adjacent runs of one form become one, seed " << seed;
    EXPECT_EQ(whole->bytes, p.bytes) << "seed " << seed;
  }
}

TEST(Plane, SliceAndJoinRefuseWhatDoesNotFit) {
  Random random(1);
  Plane p = random_plane(random, 10, 20);
  EXPECT_FALSE(slice_rows(p, 9, 12).ok());
  EXPECT_FALSE(slice_rows(p, 12, 31).ok());
  EXPECT_FALSE(slice_rows(p, 15, 14).ok());
  EXPECT_FALSE(join_rows({}).ok());
  EXPECT_FALSE(join_rows({p, p}).ok()) << "rows overlap";
}

TEST(Identity, IdsArePinned) {
  Realm realm{"default", {}, {}};
  realm.fingerprint.bytes[0] = 1;
  realm.profile.bytes[0] = 2;
  std::vector<Token> tokens{1, 2, 3};
  std::vector<Extra> extras{{1, {9, 8}}};
  // Computed by an independent implementation (Python's hashlib) of storage/FORMAT.md, "Ids".
  EXPECT_EQ(block_id(realm, {}, tokens, {}, ObjectKind::block).hex(), 
            "492229a5712225daa5cd75dc0553bad29172e62ae985c350563fd0bd2f4756f2");
  EXPECT_EQ(block_id(realm, {}, tokens, extras, ObjectKind::tail).hex(), 
            "91cad7d3e07526233f5679fb6ada397972cff612862a8b4b8c1e6691ba6ba91e");
  EXPECT_EQ(snapshot_id(realm, {}, tokens, {}).hex(), 
            "64f899c4ac2f0faba163caee16e423523ce214f1358b241bdaafa7de8778fb26");
  EXPECT_EQ(model_id("default", realm.fingerprint).hex(), 
            "162d981184dc5746321f63fb5cd83815fca885e38c724501602a6c9640afaf9a");
}

TEST(Identity, EveryFieldCounts) {
  Realm realm{"ns", {}, {}};
  std::vector<Token> tokens{1, 2};
  std::vector<Extra> extras{{0, {1}}};
  std::map<Id, std::string> seen;
  auto add = [&](const Id& id, const std::string& what) {
    EXPECT_TRUE(seen.emplace(id, what).second) << what << " equals " << seen[id];
  };
  Id other;
  other.bytes[31] = 1;
  add(block_id(realm, {}, tokens, extras, ObjectKind::block), "base");
  add(block_id(realm, {}, tokens, extras, ObjectKind::tail), "tail");
  add(snapshot_id(realm, {}, tokens, extras), "snapshot");
  add(block_id(realm, other, tokens, extras, ObjectKind::block), "parent");
  add(block_id(realm, {}, tokens, {}, ObjectKind::block), "no extras");
  std::vector<Extra> moved{{1, {1}}}, split{{0, {}}, {0, {1}}};
  add(block_id(realm, {}, tokens, moved, ObjectKind::block), "extra moved");
  add(block_id(realm, {}, tokens, split, ObjectKind::block), "extra split");
  std::vector<Token> longer{1, 2, 0}, swapped{2, 1};
  add(block_id(realm, {}, longer, extras, ObjectKind::block), "longer");
  add(block_id(realm, {}, swapped, extras, ObjectKind::block), "swapped");
  for (int field = 0; field < 3; ++field) {
    Realm r = realm;
    if (field == 0) r.ns = "ns2";
    if (field == 1) r.fingerprint = other;
    if (field == 2) r.profile = other;
    add(block_id(r, {}, tokens, extras, ObjectKind::block), "realm field " + std::to_string(field));
  }
}

}  // namespace
}  // namespace kv
