// Owners of the core one by one, on the fixture that ends with the promoter: what their headers
// promise, in a few lines each. The arrows of an object's state: cachesvc_records_test.cc.
#include "tests/support/cachesvc_owners.h"

#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class OwnersUnit : public ::testing::Test {
 protected:
  OwnersUnit() {
    options_.ram_budget_bytes = 8u << 20;
    options_.ssd_dir = dir_.store();
    options_.ssd_min_free_bytes = 0;
    options_.io_backoff = Milliseconds(20);
    options_.room_wait = Milliseconds(20);
  }
  CoreOwners& core() {
    if (!core_) core_ = std::make_unique<CoreOwners>(options_);
    return *core_;
  }
  // Every file operation of this kind fails while it is set.
  void fail(const std::string& call) {
    options_.ssd_files = &faults_;
    faults_.script = [this, call](const char* name, const std::string&) -> Status {
      return failing_ && call == name ? Status(StatusCode::io_error, "injected") : Status();
    };
  }
  void spill(Record& record) {
    EXPECT_EQ(core().spiller.ask(record), Spiller::Asked::on_its_way);
    core().spiller.pump();
    core().run();
  }
  // Out of RAM, and not promoted before.
  void evict(Record& record) { core().recency.leave_ram(record); }
  std::optional<Status> promote(Record& record) {
    Room room = Promoter::room_for(record);
    auto charges = core().room.try_room(room);
    auto status = std::make_shared<std::optional<Status>>();
    core().promoter.promote(record, std::move(charges->stored), std::move(charges->promotion),
                            [status](Status s) { *status = std::move(s); });
    core().run();
    return *status;
  }

  TempDir dir_;
  testing::FaultFiles faults_;
  bool failing_ = false;
  CacheOptions options_;
  std::unique_ptr<CoreOwners> core_;
};

TEST_F(OwnersUnit, EnvEndsOnceAtTheOutermostStepThatFindsNoMemory) {
  Env& env = *core().env;
  bool after_inner = false;
  env.run([&] {
    env.run([] { throw std::bad_alloc(); });
    after_inner = true;
  });
  EXPECT_TRUE(core().no_memory);
  EXPECT_FALSE(after_inner) << "an outer step went on with what an inner one left half done";
}

TEST_F(OwnersUnit, EnvRunsNoStepOnceItIsClosed) {
  Env& env = *core().env;
  bool ran = false;
  env.later([&] { ran = true; });
  env.on_worker([] { return 1; }, [&](int) { ran = true; });
  auto handler = env.handler([&] { ran = true; });
  env.close();
  core().run();
  handler();
  EXPECT_FALSE(ran);
}

TEST_F(OwnersUnit, PinsHoldARecordUntilTheyGo) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  {
    Pins pins(*core().env, core().index, {&block});
    EXPECT_TRUE(core().index.ram().next_victims(1, true).keys.empty());
  }
  EXPECT_EQ(block.pins, 0u);
  EXPECT_EQ(core().index.ram().next_victims(1, true).keys.size(), 1u);
}

TEST_F(OwnersUnit, SpillerWritesParentsFirst) {
  RealmState& realm = core().open_model();
  Record& root = core().give_block(realm);
  Record& child = core().give_block(realm, &root);
  spill(child);
  EXPECT_EQ(root.disk, Disk::renamed);
  EXPECT_EQ(child.disk, Disk::renamed);
}

TEST_F(OwnersUnit, SpillerLeavesWhatTheQueueHasNoRoomForWaiting) {
  options_.spill_queue_bytes = 1;
  RealmState& realm = core().open_model();
  Record& first = core().give_block(realm);
  Record& second = core().give_block(realm);
  EXPECT_EQ(core().spiller.ask(first), Spiller::Asked::on_its_way);
  EXPECT_EQ(core().spiller.ask(second), Spiller::Asked::waits);
  EXPECT_EQ(second.disk, Disk::waiting);
  core().spiller.pump();
  core().run();
  for (int i = 0; i < 3; ++i) {  // as progress() does
    core().spiller.pump();
    core().run();
  }
  EXPECT_EQ(second.disk, Disk::renamed);
}

TEST_F(OwnersUnit, SpillerAsksInVainBelowAHole) {
  RealmState& realm = core().open_model();
  Record& root = core().give_block(realm);
  Record& child = core().give_block(realm, &root);
  core().records.remove(root);
  EXPECT_EQ(core().spiller.ask(child), Spiller::Asked::in_vain);
  EXPECT_EQ(child.disk, Disk::absent);
}

TEST_F(OwnersUnit, SpillerTriesAgainWhatFailed) {
  fail("rename");
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  failing_ = true;
  spill(block);
  EXPECT_EQ(block.disk, Disk::failed);
  failing_ = false;
  core().run_for(Milliseconds(60));
  EXPECT_EQ(block.disk, Disk::renamed);
}

TEST_F(OwnersUnit, SpillerWritesAnewWhatTheSsdHasLost) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  core().spiller.file_lost(block);
  EXPECT_EQ(block.disk, Disk::queued);
  core().spiller.pump();
  core().run();
  EXPECT_EQ(block.disk, Disk::renamed);
}

TEST_F(OwnersUnit, SyncerMakesDurableWhatWasRenamedBefore) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  core().syncer.run();
  core().syncer.run();  // one is under way
  core().run();
  EXPECT_EQ(block.disk, Disk::durable);
  EXPECT_EQ(core().records.syncs(), 1u);
}

TEST_F(OwnersUnit, SyncerCountsASyncThatFailed) {
  fail("sync_dir");
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  failing_ = true;
  core().syncer.run();
  core().run();
  EXPECT_EQ(core().syncer.failed(), 1u);
  EXPECT_EQ(block.disk, Disk::renamed);
}

TEST_F(OwnersUnit, LaneTellsOfADeviceThatHangsAndOfItsReturn) {
  options_.io_timeout = Milliseconds(10);
  core().open_model();
  core().hangs = true;
  core().syncer.run();
  core().run_for(Milliseconds(40));
  EXPECT_TRUE(core().lane.hangs());
  EXPECT_GT(core().progress, 0);
  core().hangs = false;
  core().run();
  EXPECT_FALSE(core().lane.hangs());
}

TEST_F(OwnersUnit, LaneWritesNothingOfANameThatIsToGo) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  core().hangs = true;
  core().lane.unlink_behind({block.name}, false);
  EXPECT_TRUE(core().lane.unlinking(block.name));
  spill(block);
  EXPECT_EQ(block.disk, Disk::queued);
  core().hangs = false;
  core().run();
  EXPECT_FALSE(core().lane.unlinking(block.name));
  core().spiller.pump();
  core().run();
  EXPECT_EQ(block.disk, Disk::renamed);
}

TEST_F(OwnersUnit, LaneRemembersWhatCouldNotBeUnlinked) {
  fail("unlink");
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  const ObjectName name = block.name;
  core().records.remove(block);
  failing_ = true;
  core().lane.unlink_behind({name}, false);
  core().run();
  EXPECT_TRUE(core().lane.some_left());
  failing_ = false;
  core().lane.unlink_left({});
  core().run();
  EXPECT_FALSE(core().lane.some_left());
}

TEST_F(OwnersUnit, RoomServesAWaiterWhenBytesComeBack) {
  auto all = core().env->pool->try_charge(ChargeKind::stored, 8u << 20);
  options_.room_wait = Milliseconds(5000);
  bool served = false;
  core().room.with_room({.stored = 4096}, deadline_in(std::chrono::seconds(5)),
                        [&](auto charges) { served = charges.ok(); });
  core().run();
  EXPECT_FALSE(served);
  all->release();
  core().run();
  EXPECT_TRUE(served);
  EXPECT_FALSE(core().room.wanted());
}

TEST_F(OwnersUnit, RoomIsBusyAfterItsWaitAndNamesWhatCanNeverFit) {
  auto all = core().env->pool->try_charge(ChargeKind::stored, 8u << 20);
  Status said;
  core().room.with_room({.stored = 4096}, deadline_in(std::chrono::seconds(5)),
                        [&](auto charges) { said = charges.status(); });
  core().run_for(Milliseconds(60));
  EXPECT_EQ(said.code(), StatusCode::busy);
  Status never = core().room.can_never_fit({.stored = 9u << 20});
  EXPECT_EQ(never.code(), StatusCode::resource_exhausted);
  EXPECT_NE(never.message().find("9437184"), std::string::npos) << never.message();
}

TEST_F(OwnersUnit, RoomDropsCleanLeavesBeforeDirtyOnes) {
  RealmState& realm = core().open_model();
  Record& clean = core().give_block(realm);
  Record& dirty = core().give_block(realm);
  spill(clean);
  core().index.touch({&clean});  // used later than the dirty one
  const uint64_t free = core().env->pool->budget_bytes() - core().env->pool->used_bytes();
  auto charges = core().room.room_now({.stored = free + 1});
  EXPECT_TRUE(charges != nullptr);
  EXPECT_FALSE(clean.ram);
  EXPECT_TRUE(dirty.ram);
}

TEST_F(OwnersUnit, RecencyTellsAFewUsesAMinute) {
  RealmState& realm = core().open_model();
  size_t told = 0;
  for (size_t i = 0; i < 2 * Recency::kRowsPerMinute; ++i) {
    Record& block = core().give_block(realm);
    spill(block);
    block.use_untold = true;
    evict(block);
    told += !block.use_untold;
  }
  EXPECT_EQ(told, Recency::kRowsPerMinute);
}

TEST_F(OwnersUnit, PromoterReadsOnceHoweverManyWait) {
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  evict(block);
  core().hangs = true;
  EXPECT_FALSE(promote(block).has_value());
  int answered = 0;
  core().promoter.join(block, [&](Status s) { answered += s.ok(); });
  core().hangs = false;
  core().run();
  EXPECT_EQ(answered, 1);
  EXPECT_TRUE(block.ram);
  EXPECT_EQ(core().env->count.promotions, 1u);
}

TEST_F(OwnersUnit, PromoterMakesAFailedReadAMissForAWhile) {
  fail("open_read");
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  evict(block);
  failing_ = true;
  EXPECT_EQ(promote(block)->code(), StatusCode::io_error);
  EXPECT_EQ(block.disk, Disk::unreadable);
  EXPECT_FALSE(block.usable(Clock::now()));
  EXPECT_TRUE(block.usable(Clock::now() + Milliseconds(30)));
}

TEST_F(OwnersUnit, PromoterGivesUpAReadThatHangs) {
  options_.io_timeout = Milliseconds(10);
  RealmState& realm = core().open_model();
  Record& block = core().give_block(realm);
  spill(block);
  evict(block);
  core().hangs = true;
  Room room = Promoter::room_for(block);
  auto charges = core().room.try_room(room);
  Status said;
  core().promoter.promote(block, std::move(charges->stored), std::move(charges->promotion),
                          [&](Status s) { said = std::move(s); });
  core().run_for(Milliseconds(50));
  EXPECT_EQ(said.code(), StatusCode::io_error);
  EXPECT_TRUE(core().promoter.hangs());
  core().hangs = false;
  core().run();
  EXPECT_FALSE(core().promoter.hangs());
}

}  // namespace
}  // namespace kv
