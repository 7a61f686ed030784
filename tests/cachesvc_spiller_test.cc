// Spiller by itself: who is written, in which order, and what a write that can't be leaves.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

using Asked = Spiller::Asked;

class SpillerUnit : public ::testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions o = small_options(dir_.store());
    o.ssd_files = &faults_;
    return o;
  }
  void fail_writes() {
    faults_.script = [](const char* call, const std::string& path) {
      bool fails = std::string(call) == "rename" && path.ends_with(".block");
      return fails ? Status(StatusCode::io_error, "injected") : Status();
    };
  }
  static void write(CoreOwners& c, Record& record) {
    EXPECT_EQ(c.spiller.ask(record), Asked::on_its_way);
    c.spiller.pump();
    c.run();
  }

  TempDir dir_;
  testing::FaultFiles faults_;
};

TEST_F(SpillerUnit, RootFirst) {
  CoreOwners c(options());
  RealmState& realm = c.open_model();
  Record& root = c.give_block(realm);
  Record& middle = c.give_block(realm, &root);
  Record& leaf = c.give_block(realm, &middle);
  EXPECT_EQ(c.spiller.ask(leaf), Asked::on_its_way);
  std::vector<ObjectName> queue;
  for (const Record& r : c.records.lists().all(Disk::queued)) queue.push_back(r.name);
  EXPECT_EQ(queue, (std::vector{root.name, middle.name, leaf.name}));
  c.spiller.pump();
  c.run();
  EXPECT_EQ(c.records.lists().count(Disk::renamed), 3u);
  EXPECT_FALSE(c.spiller.busy());
}

TEST_F(SpillerUnit, WhatAHoleIsAboveIsAskedForInVain) {
  CoreOwners c(options());
  RealmState& realm = c.open_model();
  Record& root = c.give_block(realm);
  Record& leaf = c.give_block(realm, &root);
  c.records.remove(root);
  EXPECT_EQ(c.spiller.ask(leaf), Asked::in_vain);
  EXPECT_EQ(leaf.disk, Disk::absent);
  EXPECT_EQ(c.env->count.spills_dropped, 1u);
}

TEST_F(SpillerUnit, WithoutAnSsdEveryWishIsInVain) {
  CoreOwners c(small_options());
  Record& block = c.give_block(c.open_model());
  EXPECT_EQ(c.spiller.ask(block), Asked::in_vain);
  EXPECT_FALSE(c.spiller.ask_for_room({kCommonShare, 1}));
}

TEST_F(SpillerUnit, AFullQueueIsWaitedForAndAnEmptyOneTakesAnything) {
  CacheOptions o = options();
  o.spill_queue_bytes = 1;
  CoreOwners c(o);
  RealmState& realm = c.open_model();
  Record &first = c.give_block(realm), &second = c.give_block(realm);
  EXPECT_EQ(c.spiller.ask(first), Asked::on_its_way);
  EXPECT_EQ(c.spiller.ask(second), Asked::waits);
  EXPECT_EQ(c.spiller.ask(second), Asked::waits);
  EXPECT_EQ(second.disk, Disk::waiting);
  EXPECT_EQ(c.env->count.spills_deferred, 1u) << "of one object";
  c.spiller.pump();
  c.run();
  EXPECT_EQ(first.disk, Disk::renamed);
  EXPECT_EQ(second.disk, Disk::renamed);
}

// Its parent was erased while it waited.
TEST_F(SpillerUnit, WhatWaitsInVainWaitsNoLonger) {
  CacheOptions o = options();
  o.spill_queue_bytes = 1;
  CoreOwners c(o);
  RealmState& realm = c.open_model();
  Record& root = c.give_block(realm);
  Record& leaf = c.give_block(realm, &root);
  EXPECT_EQ(c.spiller.ask(leaf), Asked::waits);
  c.records.remove(root);
  c.spiller.pump();
  EXPECT_EQ(leaf.disk, Disk::absent);
}

TEST_F(SpillerUnit, AFailedWriteIsTriedAgainAfterItsTime) {
  CacheOptions o = options();
  o.io_backoff = Milliseconds(50);
  CoreOwners c(o);
  Record& block = c.give_block(c.open_model());
  fail_writes();
  const auto begin = Clock::now();
  write(c, block);
  EXPECT_GE(c.env->count.spills_failed, 1u);
  EXPECT_FALSE(block.on_ssd());
  faults_.script = nullptr;
  c.spiller.pump();
  while (!block.on_ssd()) c.run_for(Milliseconds(1));
  EXPECT_GE(Clock::now() - begin, o.io_backoff);
}

TEST_F(SpillerUnit, ADrainAsksForAllAndForWhatFailed) {
  CoreOwners c(options());
  RealmState& realm = c.open_model();
  Record& failed = c.give_block(realm);
  fail_writes();
  write(c, failed);
  ASSERT_EQ(failed.disk, Disk::failed);
  EXPECT_FALSE(Spiller::may_spill(failed)) << "not by itself";
  faults_.script = nullptr;
  Record& never_asked = c.give_block(realm);
  c.spiller.ask_for_all();
  c.run();
  EXPECT_EQ(failed.disk, Disk::renamed);
  EXPECT_EQ(never_asked.disk, Disk::renamed);
}

TEST_F(SpillerUnit, WhoseFileIsLostIsWrittenAgainFromRamOrGone) {
  CoreOwners c(options());
  RealmState& realm = c.open_model();
  Record &in_ram = c.give_block(realm), &on_ssd_only = c.give_block(realm);
  write(c, in_ram);
  write(c, on_ssd_only);
  c.recency.leave_ram(on_ssd_only);
  const ObjectName gone = on_ssd_only.name;
  c.spiller.file_lost(in_ram);
  c.spiller.file_lost(on_ssd_only);
  EXPECT_EQ(in_ram.disk, Disk::queued);
  EXPECT_EQ(c.index.find(gone), nullptr);
  c.spiller.pump();
  c.run();
  EXPECT_EQ(in_ram.disk, Disk::renamed);
}

// A budget that is overdrawn holds what comes next, until it is even again.
TEST_F(SpillerUnit, WritesWaitForTheirBudget) {
  CacheOptions o = options();
  o.write_bytes_per_day = 1;
  CoreOwners c(o);
  RealmState& realm = c.open_model();
  write(c, c.give_block(realm));
  Record& held = c.give_block(realm);
  write(c, held);
  EXPECT_EQ(held.disk, Disk::queued);
  EXPECT_TRUE(c.pace.held());
  EXPECT_TRUE(c.spiller.held_up()) << "for longer than anybody waits for room";
  EXPECT_FALSE(c.spiller.ask_for_room({kCommonShare, 1}));
}

}  // namespace
}  // namespace kv
