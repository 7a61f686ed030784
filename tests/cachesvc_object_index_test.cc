// ObjectIndex by itself: what is found by which name, which places there are, and who goes first.
// Orphans: cachesvc_orphans_test.cc.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class ObjectIndexTest : public ::testing::Test {
 protected:
  ObjectIndexTest() : core_(small_options()), realm_(core_.open_model()) {}
  // A block that goes on from `parent`, or from the root.
  Object child(const Record* parent) {
    Object o;
    o.name.kind = ObjectKind::block;
    o.parent = parent ? parent->name.id : Id{};
    o.first_token = parent ? realm_.tree.end_token(parent->node) : 0;
    o.tokens = random_tokens(rng_, 16);
    stamp(o, realm_.realm);
    return o;
  }
  Charge charge() { return std::move(*core_.env->pool->try_charge(ChargeKind::index, 100)); }

  CoreOwners core_;
  ObjectIndex& index_ = core_.index;
  RealmState& realm_;
  std::mt19937 rng_{31};
};

TEST_F(ObjectIndexTest, OneIsFoundByItsNameAndItsKeyAndByItsPinUntilItIsAnother) {
  Record& block = core_.give_block(realm_);
  const Object again = *block.ram;
  const PinnedName pinned{block.name, block.serial};
  EXPECT_EQ(index_.find(block.name), &block);
  EXPECT_EQ(index_.find_key(block.key), &block);
  EXPECT_EQ(index_.find(pinned), &block);
  core_.records.remove(block);
  EXPECT_EQ(index_.find(pinned.name), nullptr);
  Record* later = index_.add(realm_, again, charge());
  ASSERT_NE(later, nullptr);
  core_.records.given(*later, {std::make_shared<const Object>(again), {}});
  EXPECT_EQ(index_.find(pinned.name), later);
  EXPECT_EQ(index_.find(pinned), nullptr) << "it is not the one that was pinned";
}

TEST_F(ObjectIndexTest, WhatIsThereIsAddedOnceAndTakesNoSecondCharge) {
  Record& block = core_.give_block(realm_);
  Charge second = charge();
  EXPECT_EQ(index_.add(realm_, *block.ram, std::move(second)), &block);
  EXPECT_EQ(second.bytes(), 100u);
  EXPECT_EQ(index_.size(), 1u);
}

TEST_F(ObjectIndexTest, AChildHasItsPlaceWhereItsParentEndsAndNowhereElse) {
  Record& root = core_.give_block(realm_);
  Object good = child(&root), late = good, lost = good;
  late.first_token = 32;
  lost.parent.bytes[0] ^= 1;
  Charge kept = charge();
  EXPECT_EQ(index_.add(realm_, late, std::move(kept)), nullptr) << "its parent ends at 16";
  EXPECT_EQ(index_.add(realm_, lost, std::move(kept)), nullptr) << "nobody knows its parent";
  EXPECT_EQ(kept.bytes(), 100u);
  Record* r = index_.add(realm_, good, std::move(kept));
  ASSERT_NE(r, nullptr);
  core_.records.given(*r, {std::make_shared<const Object>(good), {}});
  EXPECT_EQ(realm_.tree.parent(r->node), root.node);
}

TEST_F(ObjectIndexTest, ANodeLivesAsLongAsSomethingIsBelowIt) {
  Record& root = core_.give_block(realm_);
  Record& leaf = core_.give_block(realm_, &root);
  const NodeId node = root.node;
  core_.records.remove(root);
  EXPECT_TRUE(realm_.tree.alive(node)) << "a block hangs on it";
  EXPECT_EQ(realm_.nodes[node].main, nullptr);
  core_.records.remove(leaf);
  EXPECT_TRUE(realm_.empty());
}

TEST_F(ObjectIndexTest, WhatIsNotInForceGoesFirstOnceItsNodesAreReordered) {
  Record& old = core_.give_block(realm_);
  const Realm other_name{"other", realm_.realm.fingerprint, realm_.realm.profile};
  auto other = index_.realm(other_name, realm_.model, realm_.profile);
  Record& newer = core_.give_block(*other);
  Record& newest = core_.give_block(*other, &newer);
  auto first = [this] { return index_.tiers().ram().next_victims(1, true).keys.at(0); };
  EXPECT_EQ(first(), old.key) << "used less recently";
  index_.set_in_force(*other, false);
  size_t steps = 0;
  for (NodeId at = kRootNode; at != kNoNode; ++steps) at = index_.reorder(*other, at, 1);
  EXPECT_EQ(steps, 3u) << "the root and two blocks";
  EXPECT_EQ(first(), newest.key) << "a leaf";
  index_.set_in_force(*other, true);
  EXPECT_EQ(index_.reorder(*other, kRootNode, 3), kNoNode);
  EXPECT_EQ(first(), old.key);
}

TEST_F(ObjectIndexTest, AProfileIsNamedAsLongAsARealmIsThere) {
  const ModelSpec spec = plain_model();
  auto profile = make_profile(spec, 3);
  const Realm name{"test", spec.fingerprint, profile->id()};
  auto held = index_.realm(name, std::make_shared<const ModelSpec>(spec), profile);
  Record& block = core_.give_block(*held);
  EXPECT_TRUE(index_.release_realms().empty()) << "something is stored";
  core_.records.remove(block);
  EXPECT_TRUE(index_.release_realms().empty()) << "somebody holds it";
  held.reset();
  EXPECT_TRUE(index_.names_profile(profile->id()));
  EXPECT_EQ(index_.release_realms(), std::vector{profile->id()});
  EXPECT_FALSE(index_.names_profile(profile->id()));
}

}  // namespace
}  // namespace kv
