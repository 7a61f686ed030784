// SpillWriter by itself: batches of what is queued; and SpillRetries by itself.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class SpillWriterUnit : public ::testing::Test {
 protected:
  CacheOptions options() {
    CacheOptions o = small_options(dir_.store());
    o.ssd_files = &faults_;
    return o;
  }
  // A path of queued blocks.
  static std::vector<Record*> queued(CoreOwners& c, size_t blocks) {
    RealmState& realm = c.open_model();
    std::vector<Record*> path;
    for (size_t i = 0; i < blocks; ++i) {
      path.push_back(&c.give_block(realm, path.empty() ? nullptr : path.back()));
      c.records.enqueue(*path.back());
    }
    return path;
  }
  static size_t in(CoreOwners& c, Disk state) { return c.records.lists().count(state); }

  TempDir dir_;
  testing::FaultFiles faults_;
};

TEST_F(SpillWriterUnit, ABatchIsPackedAndThenWritten) {
  CoreOwners c(options());
  const auto path = queued(c, 3);
  EXPECT_FALSE(c.spill_writer.packs());
  c.spill_writer.start();
  EXPECT_TRUE(c.spill_writer.packs());
  EXPECT_EQ(in(c, Disk::writing), 3u);
  for (const Record* r : path) EXPECT_TRUE(c.spill_writer.pins(*r));
  c.run();
  EXPECT_EQ(in(c, Disk::renamed), 3u);
  EXPECT_FALSE(c.spill_writer.packs() || c.spill_writer.writes());
  for (const Record* r : path) EXPECT_FALSE(c.spill_writer.pins(*r));
  EXPECT_EQ(c.env->count.spills_written, 3u);
}

TEST_F(SpillWriterUnit, TheNextBatchIsPackedWhileOneIsWritten) {
  CacheOptions o = options();
  o.spill_batch_files = 2;
  CoreOwners c(o);
  const auto path = queued(c, 5);
  c.hangs = true;
  c.spill_writer.start();
  c.run();
  EXPECT_TRUE(c.spill_writer.packs() && c.spill_writer.writes());
  EXPECT_EQ(in(c, Disk::writing), 4u);
  EXPECT_EQ(path[4]->disk, Disk::queued) << "two batches at a time";
  EXPECT_TRUE(c.spill_writer.pins(*path[3]));
  c.hangs = false;
  c.run();
  EXPECT_EQ(in(c, Disk::renamed), 5u);
}

TEST_F(SpillWriterUnit, WhatIsErasedMeanwhileIsNotWritten) {
  CoreOwners c(options());
  const auto path = queued(c, 3);
  c.spill_writer.start();
  c.records.remove(*path[2]);
  c.run();
  EXPECT_EQ(in(c, Disk::renamed), 2u);
  EXPECT_EQ(in(c, Disk::writing), 0u);
  EXPECT_EQ(c.env->count.spills_written, 2u);
}

TEST_F(SpillWriterUnit, AFailedWriteIsTold) {
  CoreOwners c(options());
  const auto path = queued(c, 1);
  faults_.script = [](const char* call, const std::string& name) {
    const bool fails = std::string(call) == "rename" && name.ends_with(".block");
    return fails ? Status(StatusCode::io_error, "injected") : Status();
  };
  c.spill_writer.start();
  c.run();
  EXPECT_EQ(path[0]->disk, Disk::failed);
  EXPECT_EQ(c.env->count.spills_failed, 1u);
  EXPECT_FALSE(c.spill_writer.packs() || c.spill_writer.writes());
}

// Two objects that failed, and retries of the test's own: nobody pumps.
class SpillRetriesUnit : public SpillWriterUnit {
 protected:
  SpillRetriesUnit()
      : core_(without_pause()),
        realm_(core_.open_model()),
        a_(core_.give_block(realm_)),
        b_(core_.give_block(realm_)) {
    retries_.begin([this] { ++tries_; });
    core_.records.wait(a_);
    core_.records.wait(b_);
    fail();
  }
  CacheOptions without_pause() {
    CacheOptions o = options();
    o.io_backoff = Milliseconds(1);
    return o;
  }
  void fail() {
    for (Record* r : {&a_, &b_}) {
      core_.records.enqueue(*r);
      core_.records.begin_write(*r);
      retries_.failed(*r);
    }
  }
  void wait_for_tries(int tries) {
    const Clock::time_point end = Clock::now() + std::chrono::seconds(60);
    while (tries_ < tries && Clock::now() < end) core_.run_for(Milliseconds(1));
    ASSERT_EQ(tries_, tries);
  }

  CoreOwners core_;
  RealmState& realm_;
  Record &a_, &b_;
  SpillRetries retries_{*core_.env, core_.records};
  int tries_ = 0;
};

TEST_F(SpillRetriesUnit, OneIsTriedToTestTheDeviceAndAllWhenItWorks) {
  EXPECT_EQ(core_.env->count.spills_failed, 2u);
  EXPECT_EQ(in(core_, Disk::failed), 2u);
  wait_for_tries(1);
  EXPECT_EQ(a_.disk, Disk::waiting) << "the one that failed first";
  EXPECT_EQ(b_.disk, Disk::failed);
  retries_.arm();
  wait_for_tries(2);
  EXPECT_EQ(b_.disk, Disk::waiting);
  fail();
  retries_.wrote();
  wait_for_tries(3);
  EXPECT_EQ(in(core_, Disk::waiting), 2u);
  fail();
  wait_for_tries(4);
  EXPECT_EQ(in(core_, Disk::failed), 1u) << "nothing was written since";
}

TEST_F(SpillRetriesUnit, ADrainTriesAllAtOnceAndNoMoreByItself) {
  core_.env->drain();
  retries_.all();
  EXPECT_EQ(in(core_, Disk::waiting), 2u);
  wait_for_tries(1);  // of the time that was set before
  fail();
  core_.run_for(Milliseconds(20));
  EXPECT_EQ(tries_, 1);
  EXPECT_EQ(in(core_, Disk::failed), 2u);
}

}  // namespace
}  // namespace kv
