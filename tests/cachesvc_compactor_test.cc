// Compactor by itself: what it moves out of a retired segment, what it leaves, and that the segment
// can go then.
#include "cachesvc/core/compactor.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class CompactorUnit : public ::testing::Test {
 protected:
  CompactorUnit() : core_(mapped_options()), realm_(core_.open_model()) {
    for (int i = 0; i < 6; ++i) blocks_.push_back(&core_.give_block(realm_));
  }
  static CacheOptions mapped_options() {
    CacheOptions o = small_options();
    o.segments = true;
    return o;
  }
  SegmentStore& segments() { return *core_.env->pool->segments(); }
  // A client maps the segment of the blocks; then nothing new comes there.
  void retire() {
    const auto place = segments().place_of(realm_.realm.ns, payload_of(*blocks_[0]->ram));
    ASSERT_TRUE(place);
    view_ = segments().announce(place->segment);
    ASSERT_TRUE(view_);
    ASSERT_EQ(segments().retire_emptiest(), place->segment);
    for (const Record* block : blocks_) ASSERT_TRUE(in_retired(*block));
  }
  bool in_retired(const Record& block) { return segments().in_retired(payload_of(*block.ram)); }
  void run_until_idle() {
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (!core_.compactor.idle() && Clock::now() < end) core_.run_for(Milliseconds(1));
    EXPECT_TRUE(core_.compactor.idle());
    core_.check_invariants();
  }

  CoreOwners core_;
  RealmState& realm_;
  std::vector<Record*> blocks_;
  std::shared_ptr<const SegmentView> view_;
};

TEST_F(CompactorUnit, WhatLiesInARetiredSegmentMovesAndTheSegmentGoes) {
  retire();
  const size_t before = segments().segments();
  std::vector<std::vector<uint8_t>> bytes;
  for (const Record* block : blocks_) {
    const Bytes& plane = block->ram->planes[0].bytes;
    bytes.emplace_back(plane.data(), plane.data() + plane.size());
  }
  const uint64_t used = core_.env->pool->used_bytes();
  core_.compactor.begin();
  run_until_idle();
  for (size_t i = 0; i < blocks_.size(); ++i) {
    EXPECT_FALSE(in_retired(*blocks_[i])) << i;
    EXPECT_TRUE(intact(blocks_[i]->ram));
    const Bytes& plane = blocks_[i]->ram->planes[0].bytes;
    EXPECT_TRUE(std::equal(bytes[i].begin(), bytes[i].end(), plane.data())) << i;
  }
  EXPECT_EQ(core_.env->count.ram_moved, blocks_.size());
  EXPECT_EQ(core_.env->pool->used_bytes(), used);
  EXPECT_EQ(segments().segments(), before + 1) << "what has moved lies in another";
  view_.reset();
  segments().close_retired();
  EXPECT_EQ(segments().segments(), before);
}

TEST_F(CompactorUnit, WhatSomebodyHasPinnedStaysWhereItIs) {
  retire();
  Pins pins(*core_.env, core_.index, {blocks_[2]});
  core_.compactor.begin();
  run_until_idle();
  for (const Record* block : blocks_) EXPECT_EQ(in_retired(*block), block == blocks_[2]);
  pins.release();
  core_.compactor.begin();
  run_until_idle();
  EXPECT_FALSE(in_retired(*blocks_[2]));
}

TEST_F(CompactorUnit, APinThatComesWhileItIsCopiedWins) {
  retire();
  core_.workers_hang = true;
  core_.compactor.begin();
  core_.run_for(Milliseconds(5));
  EXPECT_FALSE(core_.compactor.idle()) << "a copy is under way";
  std::vector<Record*> all = blocks_;
  Pins pins(*core_.env, core_.index, all);
  core_.workers_hang = false;
  run_until_idle();
  for (const Record* block : blocks_) EXPECT_TRUE(in_retired(*block));
  EXPECT_EQ(core_.env->count.ram_moved, 0u);
}

// A lease may last for minutes: what it pins is not looked for again and again.
TEST_F(CompactorUnit, AWalkThatHasMovedNothingIsTheLastForAWhile) {
  retire();
  std::vector<Record*> all = blocks_;
  Pins pins(*core_.env, core_.index, all);
  core_.workers_hang = true;  // nothing that is pinned is copied, even in vain
  core_.compactor.begin();
  EXPECT_FALSE(core_.compactor.idle());
  run_until_idle();
  core_.workers_hang = false;
  pins.release();
  core_.compactor.begin();
  EXPECT_TRUE(core_.compactor.idle()) << "it rests";
}

TEST_F(CompactorUnit, WithoutRoomNothingMoves) {
  retire();
  RamPool& pool = *core_.env->pool;
  Charge others = *pool.try_charge(ChargeKind::session, pool.free_bytes());
  core_.compactor.begin();
  run_until_idle();
  for (const Record* block : blocks_) EXPECT_TRUE(in_retired(*block));
}

TEST_F(CompactorUnit, AnObjectThatTheMachineHasChangedLeavesRam) {
  retire();
  const auto* byte = payload_of(*blocks_[1]->ram);
  *const_cast<uint8_t*>(byte) ^= 1;
  core_.compactor.begin();
  const PinnedName damaged{blocks_[1]->name, blocks_[1]->serial};
  run_until_idle();
  const Record* record = core_.index.find(damaged);
  EXPECT_TRUE(!record || !record->ram);
  EXPECT_EQ(core_.env->count.ram_damaged, 1u);
  EXPECT_EQ(core_.env->count.ram_moved, blocks_.size() - 1);
}

}  // namespace
}  // namespace kv
