// Levels by themselves: what is said of a path, and when a wait for more ends.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class LevelsTest : public ::testing::Test {
 protected:
  LevelsTest() {
    options_ = small_options(dir_.store());
    options_.durable_group_delay = Milliseconds(0);
    options_.ssd_files = &faults_;
  }
  CoreOwners& core() {
    if (!core_) core_ = std::make_unique<CoreOwners>(options_);
    return *core_;
  }
  // A wait for a path of blocks; its answer comes to reply_.
  void wait(const std::vector<Record*>& path, Durability level, Deadline deadline = soon()) {
    CommitWait wait;
    for (const Record* r : path) wait.path.push_back({r->name, r->serial});
    wait.model = core().model;
    wait.wait_for = level;
    wait.call = core().calls.begin<Result<CommitReply>>(
        0, deadline, [this](Result<CommitReply> r) { reply_.emplace(std::move(r)); });
    core().levels.wait(std::move(wait));
  }
  void spill(Record& record) {
    core().spiller.ask(record);
    core().spiller.pump();
    core().run();
  }
  Durability level() const { return (*reply_)->level; }

  TempDir dir_;
  testing::FaultFiles faults_;
  CacheOptions options_;
  std::unique_ptr<CoreOwners> core_;
  std::optional<Result<CommitReply>> reply_;
};

TEST_F(LevelsTest, AWaitForAcceptedEndsAtOnce) {
  RealmState& realm = core().open_model();
  wait({&core().give_block(realm)}, Durability::accepted);
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::accepted);
}

TEST_F(LevelsTest, ThePathsLevelIsThatOfItsLowestObject) {
  RealmState& realm = core().open_model();
  Record& root = core().give_block(realm);
  Record& child = core().give_block(realm, &root);
  spill(root);
  wait({&root, &child}, Durability::accepted);
  EXPECT_EQ(level(), Durability::accepted);
  reply_.reset();
  spill(child);
  wait({&root, &child}, Durability::spilled);
  EXPECT_EQ(level(), Durability::spilled);
}

TEST_F(LevelsTest, DurableIsSaidAfterASync) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  core().hangs = true;
  core().spiller.ask(block);
  wait({&block}, Durability::durable);
  core().run_all();
  EXPECT_FALSE(reply_);
  core().hangs = false;
  core().run_all();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::durable);
}

TEST_F(LevelsTest, EveryObjectOfThePathIsWaitedFor) {
  RealmState& realm = core().open_model();
  std::vector<Record*> path{&core().give_block(realm)};
  while (path.size() < 3) path.push_back(&core().give_block(realm, path.back()));
  core().hangs = true;
  for (Record* r : path) core().spiller.ask(*r);
  wait(path, Durability::durable);
  core().records.begin_write(*path[2]);  // the last one first
  core().records.written(*path[2], Durability::spilled, 4096);
  core().levels.answer();
  EXPECT_FALSE(reply_);
  core().records.begin_write(*path[0]);
  core().records.fail_write(*path[0]);
  core().levels.answer();
  EXPECT_FALSE(reply_) << "the second is under way";
  core().records.begin_write(*path[1]);
  core().records.fail_write(*path[1]);
  core().levels.answer();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::accepted);
}

// A sync that began before an object was written says nothing of it: another one follows.
TEST_F(LevelsTest, WhatIsWrittenDuringASyncIsSyncedByTheNext) {
  RealmState& realm = core().open_model();
  Record& before = core().give_block(realm);
  Record& after = core().give_block(realm);
  spill(before);
  wait({&before}, Durability::durable);
  core().hangs = true;
  core().run_all();
  EXPECT_FALSE(reply_);
  core().spiller.ask(after);
  core().records.begin_write(after);
  core().records.written(after, Durability::spilled, 4096);
  wait({&before, &after}, Durability::durable);
  core().hangs = false;
  core().run_all();
  EXPECT_EQ(before.disk, Disk::durable);
  EXPECT_EQ(after.disk, Disk::durable);
}

// Reads, a few at a time, wait for no write.
TEST_F(LevelsTest, FilesThatNobodyHasReadAreReadWhileOthersAreWritten) {
  RealmState& realm = core().open_model();
  std::vector<Record*> path;
  for (int i = 0; i < 10; ++i) {
    path.push_back(&core().give_block(realm));
    spill(*path.back());
    core().recency.leave_ram(*path.back());
    core().records.doubt(*path.back());
  }
  path.push_back(&core().give_block(realm));
  core().spiller.ask(*path.back());
  core().workers_hang = true;  // so it is packed for ever
  wait(path, Durability::spilled);
  core().run_all();
  EXPECT_EQ(path.back()->disk, Disk::writing);
  EXPECT_FALSE(reply_);
  path.pop_back();
  for (const Record* r : path) EXPECT_TRUE(r->verified());
}

TEST_F(LevelsTest, AWriteThatItsBudgetHoldsUpIsNotWaitedFor) {
  options_.write_bytes_per_day = 1;
  RealmState& realm = core().open_model();
  core().hangs = true;
  spill(core().give_block(realm));
  Record& next = core().give_block(realm);
  core().spiller.ask(next);
  wait({&next}, Durability::spilled);
  core().run_all();
  EXPECT_FALSE(reply_);
  core().hangs = false;
  core().run_all();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(next.disk, Disk::queued);
  EXPECT_EQ(level(), Durability::accepted);
}

TEST_F(LevelsTest, WithoutAnSsdAWaitEndsWithWhatThereIs) {
  options_.ssd_dir.clear();
  RealmState& realm = core().open_model();
  wait({&core().give_block(realm)}, Durability::durable);
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::accepted);
}

TEST_F(LevelsTest, AWriteThatFailedEndsTheWaitWithoutALie) {
  RealmState& realm = core().open_model();
  faults_.script = [](const char* call, const std::string&) -> Status {
    return std::string(call) == "rename" ? Status(StatusCode::io_error, "injected") : Status();
  };
  Record& block = core().give_block(realm);
  core().spiller.ask(block);
  wait({&block}, Durability::spilled);
  core().run_all();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::accepted);
  faults_.script = nullptr;
}

TEST_F(LevelsTest, AnObjectThatIsGoneIsNamedAndThePathIsNowhere) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  const ObjectName name = block.name;
  core().hangs = true;
  core().spiller.ask(block);
  wait({&block}, Durability::durable);
  core().records.remove(block);
  core().levels.answer();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::none);
  EXPECT_EQ((*reply_)->lost, std::vector<ObjectName>{name});
}

TEST_F(LevelsTest, TheAnswerComesBeforeTheDeadlineWithWhatWasReached) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  core().hangs = true;
  core().spiller.ask(block);
  wait({&block}, Durability::durable, Clock::now() + Milliseconds(60));
  core().run_for(Milliseconds(80));
  ASSERT_TRUE(reply_);
  ASSERT_TRUE(reply_->ok()) << reply_->status().to_string();
  EXPECT_EQ(level(), Durability::accepted);
}

// `spilled` is said of bytes that were read or written since the start.
TEST_F(LevelsTest, AFileThatNobodyHasReadIsReadFirst) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  core().recency.leave_ram(block);
  core().records.doubt(block);
  wait({&block}, Durability::spilled);
  core().run_all();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_GE(level(), Durability::spilled);
  EXPECT_TRUE(block.verified());
  EXPECT_EQ(core().env->count.promotions, 1u);
}

// The next one would do: who has waited is answered all the same.
TEST_F(LevelsTest, ASyncThatFailedEndsTheWait) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  faults_.script = [fails = true](const char* call, const std::string&) mutable -> Status {
    if (std::string(call) != "sync_dir" || !std::exchange(fails, false)) return {};
    return {StatusCode::io_error, "injected"};
  };
  wait({&block}, Durability::durable);
  core().run_all();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::spilled);
  faults_.script = nullptr;
}

TEST_F(LevelsTest, ADeviceThatHangsIsNotWaitedFor) {
  options_.io_timeout = Milliseconds(10);
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  core().hangs = true;
  wait({&block}, Durability::durable);
  while (!core().lane.hangs()) core().run_for(Milliseconds(1));
  core().levels.answer();
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::spilled);
}

TEST_F(LevelsTest, WithoutItsModelsRecordsAPathIsOnlyAccepted) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  core().model->records_durable = false;
  wait({&block}, Durability::spilled);
  ASSERT_TRUE(reply_ && reply_->ok()) << "nobody writes them";
  EXPECT_EQ(level(), Durability::accepted);
}

TEST_F(LevelsTest, WithoutRoomToReadItAFileIsNotSaidToBeThere) {
  options_.room_wait = Milliseconds(5);
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  core().recency.leave_ram(block);
  core().records.doubt(block);
  RamPool& pool = *core().env->pool;
  Charge others = *pool.try_charge(ChargeKind::session, pool.budget_bytes() - pool.used_bytes());
  wait({&block}, Durability::spilled);
  EXPECT_FALSE(reply_);
  core().run_for(Milliseconds(20));
  ASSERT_TRUE(reply_ && reply_->ok());
  EXPECT_EQ(level(), Durability::accepted);
  EXPECT_EQ(block.disk, Disk::known);
}

}  // namespace
}  // namespace kv
