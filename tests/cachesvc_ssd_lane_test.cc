// SsdLane by itself: order of jobs, files that are to go, and a device that hangs.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class SsdLaneUnit : public ::testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions o = small_options(dir_.store());
    o.ssd_files = &faults_;
    return o;
  }
  void fail_unlinks() {
    faults_.script = [](const char* call, const std::string& path) {
      bool fails = std::string(call) == "unlink" && path.ends_with(".block");
      return fails ? Status(StatusCode::io_error, "injected") : Status();
    };
  }
  static Record& spilled(CoreOwners& c, RealmState& realm, const Record* parent = nullptr) {
    Record& block = c.give_block(realm, parent);
    spill(c, block);
    EXPECT_EQ(block.disk, Disk::renamed);
    return block;
  }
  static void spill(CoreOwners& c, Record& block) {
    c.spiller.ask(block);
    c.spiller.pump();
    c.run();
  }
  // Its bytes stay in RAM, its file is to go.
  static void unlink_file(CoreOwners& c, Record& block, std::function<void(Status)> then = {}) {
    c.records.lost(block);
    c.lane.unlink_behind({block.name}, false, std::move(then));
  }

  TempDir dir_;
  testing::FaultFiles faults_;
};

TEST_F(SsdLaneUnit, NothingIsWrittenOfANameUntilItsUnlinkIsDone) {
  CoreOwners c(options());
  Record& block = spilled(c, c.open_model());
  c.hangs = true;
  unlink_file(c, block);
  EXPECT_TRUE(c.lane.unlinking(block.name));
  spill(c, block);
  EXPECT_EQ(block.disk, Disk::queued);
  const int told = c.progress;
  c.hangs = false;
  c.run();
  EXPECT_FALSE(c.lane.unlinking(block.name));
  EXPECT_GT(c.progress, told) << "whoever waits for the name looks again";
  spill(c, block);
  EXPECT_EQ(block.disk, Disk::renamed);
  EXPECT_TRUE(c.lane.ssd()->read(block.name).ok());
}

TEST_F(SsdLaneUnit, WhatCouldNotBeUnlinkedIsLeftUntilItIs) {
  CoreOwners c(options());
  Record& block = spilled(c, c.open_model());
  const ObjectName name = block.name;
  fail_unlinks();
  Status told;
  unlink_file(c, block, [&](Status s) { told = std::move(s); });
  c.records.remove(block);
  c.run();
  EXPECT_EQ(told.code(), StatusCode::io_error);
  EXPECT_FALSE(c.lane.unlinking(name));
  EXPECT_TRUE(c.lane.some_left());
  faults_.script = nullptr;
  c.lane.unlink_left();
  c.run();
  EXPECT_FALSE(c.lane.some_left());
  EXPECT_FALSE(c.lane.ssd()->read(name).ok());
}

TEST_F(SsdLaneUnit, WhatIsStoredAnewIsLeftNoLonger) {
  CoreOwners c(options());
  Record& block = spilled(c, c.open_model());
  fail_unlinks();
  unlink_file(c, block);
  c.run();
  EXPECT_TRUE(c.lane.some_left());
  spill(c, block);
  EXPECT_FALSE(c.lane.some_left());
  faults_.script = nullptr;
  c.lane.unlink_left();
  c.run();
  EXPECT_TRUE(c.lane.ssd()->read(block.name).ok()) << "it is not unlinked";
}

TEST_F(SsdLaneUnit, OthersPassUnlinksInTheirOrderAndTheLastJobPassesNone) {
  CoreOwners c(options());
  RealmState& realm = c.open_model();
  std::string order;
  auto note = [&](char what) { return [&order, what](auto) { order += what; }; };
  auto job = [] { return true; };
  c.hangs = true;
  for (int i = 0; i < 8; ++i) unlink_file(c, c.give_block(realm), note('u'));
  c.lane.run(job, note('1'));
  c.lane.run_last(job, note('l'));
  c.lane.run(job, note('2'));
  c.hangs = false;
  c.run();
  EXPECT_EQ(order.back(), 'l') << order;
  EXPECT_LT(order.find('1'), order.find('2')) << order;
  EXPECT_LT(order.find('2'), order.rfind('u')) << order;
}

TEST_F(SsdLaneUnit, ADeviceThatEndsNoJobForSoLongHangsUntilItEndsOne) {
  CacheOptions o = options();
  o.io_timeout = Milliseconds(5);
  CoreOwners c(o);
  c.hangs = true;
  const auto begin = Clock::now();
  c.lane.run([] { return true; }, [](bool) {});
  EXPECT_EQ(c.progress, 0);
  while (!c.lane.hangs()) c.run_for(Milliseconds(1));
  EXPECT_GE(Clock::now() - begin, o.io_timeout);
  EXPECT_EQ(c.env->count.io_timeouts, 1u);
  c.run();
  const int told = c.progress;
  EXPECT_GT(told, 0) << "whoever waits for it is answered";
  c.hangs = false;
  c.run();
  EXPECT_FALSE(c.lane.hangs());
  EXPECT_GT(c.progress, told);
}

TEST_F(SsdLaneUnit, AnIdleDeviceDoesNotHang) {
  CacheOptions o = options();
  o.io_timeout = Milliseconds(5);
  CoreOwners c(o);
  c.lane.run([] { return true; }, [](bool) {});
  c.run();
  c.run_for(Milliseconds(20));
  EXPECT_FALSE(c.lane.hangs());
  EXPECT_EQ(c.env->count.io_timeouts, 0u);
}

TEST_F(SsdLaneUnit, RoomIsMadeByLeavesAndTheyAreNotWrittenAgainByThemselves) {
  CoreOwners c(options());
  RealmState& realm = c.open_model();
  Record& root = spilled(c, realm);
  Record& leaf = spilled(c, realm, &root);
  c.lane.lost().remember(true);
  bool gone = false;
  c.lane.run_with_room(
      1, [&c, name = leaf.name] { return !c.lane.ssd()->read(name).ok(); },
      [&](bool was_gone) { gone = was_gone; });
  c.run();
  EXPECT_TRUE(gone) << "before the job";
  EXPECT_EQ(leaf.disk, Disk::refused);
  EXPECT_FALSE(Spiller::may_spill(leaf));
  EXPECT_EQ(root.disk, Disk::renamed);
  EXPECT_TRUE(c.lane.lost().contains(leaf.name));
  c.lane.lost().remember(false);
  EXPECT_FALSE(c.lane.lost().contains(leaf.name));
}

}  // namespace
}  // namespace kv
