// Syncer by itself: renamed -> durable, in groups, and what a failed sync leaves.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class SyncerUnit : public ::testing::Test {
 protected:
  SyncerUnit() {
    CacheOptions options = small_options(dir_.store());
    options.ssd_files = &faults_;
    options.durable_group_delay = Milliseconds(5);
    owners_ = std::make_unique<CoreOwners>(options);
    realm_ = &owners_->open_model();
  }
  // As a write leaves it, without its file.
  Record& renamed() {
    Record& block = owners_->give_block(*realm_);
    owners_->records.enqueue(block);
    owners_->records.begin_write(block);
    owners_->records.written(block, Durability::spilled, 4096);
    return block;
  }
  void fail_syncs() {
    faults_.script = [](const char* call, const std::string&) {
      bool fails = std::string(call) == "sync_dir";
      return fails ? Status(StatusCode::io_error, "injected") : Status();
    };
  }

  TempDir dir_;
  testing::FaultFiles faults_;
  std::unique_ptr<CoreOwners> owners_;
  RealmState* realm_ = nullptr;
};

TEST_F(SyncerUnit, OneForAllThatCameWithinTheDelay) {
  CoreOwners& c = *owners_;
  Record& first = renamed();
  c.syncer.schedule();
  EXPECT_EQ(c.records.syncs(), 0u) << "companions may come";
  Record& second = renamed();
  c.syncer.schedule();
  const int told = c.progress;
  c.run_for(Milliseconds(30));
  EXPECT_EQ(first.disk, Disk::durable);
  EXPECT_EQ(second.disk, Disk::durable);
  EXPECT_EQ(c.records.syncs(), 1u);
  EXPECT_GT(c.progress, told);
}

TEST_F(SyncerUnit, WhatCameAfterItsBeginWaitsForTheNext) {
  CoreOwners& c = *owners_;
  Record& before = renamed();
  c.hangs = true;
  c.syncer.run();
  Record& after = renamed();
  c.hangs = false;
  c.run();
  EXPECT_EQ(before.disk, Disk::durable);
  EXPECT_EQ(after.disk, Disk::renamed);
}

TEST_F(SyncerUnit, OneAtATime) {
  CoreOwners& c = *owners_;
  c.hangs = true;
  for (int i = 0; i < 3; ++i) c.syncer.run();
  c.syncer.schedule();
  c.run_for(Milliseconds(30));
  EXPECT_EQ(c.records.syncs(), 1u);
  c.hangs = false;
  c.run();
  c.syncer.run();
  EXPECT_EQ(c.records.syncs(), 2u);
}

TEST_F(SyncerUnit, OneThatFailedIsCountedAndItsObjectsStayRenamed) {
  CoreOwners& c = *owners_;
  Record& block = renamed();
  fail_syncs();
  const int told = c.progress;
  c.syncer.run();
  c.run();
  EXPECT_EQ(c.syncer.failed(), 1u);
  EXPECT_EQ(block.disk, Disk::renamed);
  EXPECT_GT(c.progress, told) << "whoever waits is answered";
  faults_.script = nullptr;
  c.syncer.run();
  c.run();
  EXPECT_EQ(c.syncer.failed(), 1u);
  EXPECT_EQ(block.disk, Disk::durable);
}

// In several steps of the loop; the next sync begins behind the last of them.
TEST_F(SyncerUnit, ManyBecomeDurableByOne) {
  CoreOwners& c = *owners_;
  for (int i = 0; i < 200; ++i) renamed();
  c.syncer.run();
  c.run();
  EXPECT_EQ(c.records.lists().count(Disk::durable), 200u);
  EXPECT_EQ(c.records.syncs(), 1u);
}

}  // namespace
}  // namespace kv
