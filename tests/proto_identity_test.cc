// Ids: pinned for ever (a changed id loses every stored cache), and no two computations share one.
// The golden values were computed apart from this code, from FORMAT.md "Ids" and Python's hashlib.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "proto/identity.h"
#include "tests/support/proto_specs.h"

namespace kv {
namespace {

using namespace kv::testing;

Id filled(uint8_t byte) {
  Id id;
  id.bytes.fill(byte);
  return id;
}

struct Fields {
  Realm realm{"tenant", filled(0x11), filled(0x22)};
  Id parent = filled(0x33);
  std::vector<Token> tokens = {1, 2, -3};
  std::vector<Extra> extras = {{5, {0xaa, 0xbb}}};

  Id block() const { return block_id(realm, parent, tokens, extras, ObjectKind::block); }
  Id tail() const { return block_id(realm, parent, tokens, extras, ObjectKind::tail); }
  Id snapshot() const { return snapshot_id(realm, parent, tokens, extras); }
};

TEST(Identity, GoldenIds) {
  Fields f;
  EXPECT_EQ(f.block().hex(), "547b8f154583e19c778284264f3bf7874a27037f6c7dc685adee1eaf353a52d2");
  EXPECT_EQ(f.tail().hex(), "b7d832a9c0bfb5412fef25b7d4499a7545b942e4926f9cc9eb248c778d594135");
  EXPECT_EQ(f.snapshot().hex(), "fe64436b115baf1dde6600b7a437ef740da804c5a936fc3d71dac465af837645");
  EXPECT_EQ(model_id("tenant", filled(0x11)).hex(),
            "ab7842703642eb7838cb0c59e33792c246b6510d7ddc861e0a39e57c80a1b325");
  Fields root{{"", filled(0x11), filled(0x22)}, {}, {7}, {}};
  EXPECT_EQ(root.block().hex(), "d21a19a0fbddd2774d1c94c24da5870062e703d4c4c9047468798c32686ad08f");
}

TEST(Identity, EachFieldAloneChangesTheId) {
  const std::function<void(Fields&)> changes[] = {
      [](Fields&) {},
      [](Fields& f) { f.realm.ns = "Tenant"; },
      [](Fields& f) { f.realm.ns = ""; },
      [](Fields& f) { f.realm.fingerprint.bytes[31] ^= 1; },
      [](Fields& f) { f.realm.profile.bytes[31] ^= 1; },
      [](Fields& f) { f.parent.bytes[31] ^= 1; },
      [](Fields& f) { f.parent = {}; },
      [](Fields& f) { f.tokens[2] = 3; },
      [](Fields& f) { f.tokens.push_back(0); },
      [](Fields& f) { f.tokens.pop_back(); },
      [](Fields& f) { f.extras[0].position = 6; },
      [](Fields& f) { f.extras[0].bytes[1] = 0; },
      [](Fields& f) {
        f.extras.push_back({6, {}});
      },
      [](Fields& f) { f.extras.clear(); },
  };
  std::set<Id> ids;
  for (const auto& change : changes) {
    Fields f;
    change(f);
    ids.insert(f.block());
    ids.insert(f.tail());
    ids.insert(f.snapshot());
  }
  EXPECT_EQ(ids.size(), 3 * std::size(changes));
  EXPECT_NE(model_id("a", filled(1)), model_id("b", filled(1)));
  EXPECT_NE(model_id("a", filled(1)), model_id("a", filled(2)));
}

// Field lists whose plain concatenation is the same bytes must still differ.
TEST(Identity, FieldsThatConcatenateAlikeDiffer) {
  Fields a, b;
  a.extras = {{5, {1, 2}}, {6, {3}}};
  b.extras = {{5, {1}}, {6, {2, 3}}};
  EXPECT_NE(a.block(), b.block());
  // One extra whose bytes spell a second extra against two extras.
  a.extras = {{5, {}}, {6, {}}};
  b.extras = {{5, {6, 0, 0, 0, 0, 0, 0, 0}}};
  EXPECT_NE(a.block(), b.block());
  // Bytes moved from the end of one field to the start of the next.
  Fields c, d;
  c.realm.ns = "ab";
  c.realm.fingerprint.bytes.fill('b');
  d.realm.ns = "a";
  d.realm.fingerprint.bytes.fill('b');
  EXPECT_NE(c.block(), d.block());
}

TEST(Identity, StampedObjectsMatchAndChangedOnesDoNot) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Rng rng(seed);
    ModelSpec m = random_model(rng);
    Object o = random_object(rng, m, random_profile(rng, m));
    EXPECT_TRUE(id_matches(o)) << seed;
    Object supplement = o;
    supplement.name.kind = ObjectKind::supplement;
    EXPECT_TRUE(id_matches(supplement)) << "a supplement carries its block's or tail's id";
    Object changed = o;
    changed.tokens[0] ^= 1;
    EXPECT_FALSE(id_matches(changed)) << seed;
    changed = o;
    changed.ns += "x";
    EXPECT_FALSE(id_matches(changed)) << seed;
    changed = o;
    changed.name.kind = o.name.kind == ObjectKind::block ? ObjectKind::tail : ObjectKind::block;
    EXPECT_FALSE(id_matches(changed)) << seed;
  }
}

}  // namespace
}  // namespace kv
