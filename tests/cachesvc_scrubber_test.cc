// Scrubber by itself: a pass over the files, what it finds, and to whom it gives way.
#include "storage/inspect.h"
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class ScrubberUnit : public ::testing::Test {
 protected:
  ScrubberUnit() {
    options_ = small_options(dir_.store());
    options_.scrub_bytes_per_second = 1ull << 40;
  }
  CoreOwners& core() {
    if (!core_) {
      core_ = std::make_unique<CoreOwners>(options_);
      core_->open_model();
    }
    return *core_;
  }
  const Counters& count() { return core().env->count; }
  Record& spilled() {
    Record& block = core().give_block(*core().model->realm);
    core().spiller.ask(block);
    core().spiller.pump();
    core().run();
    EXPECT_EQ(block.disk, Disk::renamed);
    return block;
  }
  // A block as after a start: nobody has read its file.
  Record& known() {
    Record& block = spilled();
    core().recency.leave_ram(block);
    core().records.doubt(block);
    return block;
  }
  std::string path(const std::string& name) const {
    return dir_.store() + "/" + name[0] + "/" + name;
  }
  void flip(const std::string& name) {
    auto bytes = static_cast<long>(std::filesystem::file_size(path(name)));
    testing::flip_byte(path(name), bytes - 3);
  }
  std::string name_of(FileKind kind) {
    auto listed = inspect_directory(dir_.store(), InspectDepth::headers);
    EXPECT_TRUE(listed.ok()) << listed.status().to_string();
    for (const auto& f : listed->files) {
      if (f.kind == kind) return std::filesystem::path(f.path).filename();
    }
    return {};
  }
  void pass() {
    const auto end = soon();
    core().scrubber.begin(0);
    while (count().scrub_passes == 0 && Clock::now() < end) core().run_for(Milliseconds(1));
    EXPECT_EQ(count().scrub_passes, 1u);
  }

  TempDir dir_;
  CacheOptions options_;
  std::unique_ptr<CoreOwners> core_;
};

TEST_F(ScrubberUnit, APassReadsEveryFileOnceAndWhatIsRightIsVerified) {
  Record& block = known();
  known();
  pass();
  EXPECT_EQ(count().scrubbed_files, 4u) << "two blocks, a profile, a model record";
  EXPECT_EQ(count().scrub_damaged, 0u);
  EXPECT_EQ(block.disk, Disk::renamed);
  EXPECT_FALSE(block.ram);
}

TEST_F(ScrubberUnit, ADamagedFileIsAMissAndItsBytesAreInQuarantine) {
  Record& block = known();
  const ObjectName name = block.name;
  flip(file_name(name));
  pass();
  EXPECT_EQ(core().index.find(name), nullptr);
  EXPECT_FALSE(std::filesystem::exists(path(file_name(name))));
  EXPECT_EQ(count().scrub_damaged, 1u);
  EXPECT_EQ(count().quarantined, 1u);
}

TEST_F(ScrubberUnit, WhatIsInRamIsWrittenAnew) {
  Record& block = spilled();
  flip(file_name(block.name));
  pass();
  EXPECT_EQ(count().scrub_damaged, 1u);
  core().spiller.pump();
  core().run();
  EXPECT_EQ(block.disk, Disk::renamed);
  EXPECT_TRUE(core().lane.ssd()->read(block.name).ok());
}

TEST_F(ScrubberUnit, DamagedRecordsAreWrittenAnew) {
  for (FileKind kind : {FileKind::profile, FileKind::model_record}) {
    core_.reset();
    core();
    const std::string name = name_of(kind);
    flip(name);
    pass();
    EXPECT_EQ(count().scrub_damaged, 1u) << name;
    EXPECT_TRUE(core().lane.ssd()->verify(name_of(kind)).ok()) << name;
  }
}

TEST_F(ScrubberUnit, GivesWayToAStartAndToWhoeverWaitsForRam) {
  spilled();
  CoreOwners& c = core();
  c.found.waiting(1);
  c.scrubber.begin(0);
  c.run_for(Milliseconds(5));
  EXPECT_EQ(count().scrubbed_files, 0u);
  RamPool& pool = *c.env->pool;
  Charge in_transit = *pool.try_charge(ChargeKind::staging, pool.staging_limit_bytes());
  Room room;
  room.staging = 1;
  c.room.with_room(room, soon(), [](auto) {});
  c.found.settled(1);
  c.run_for(Milliseconds(150));  // it has asked again
  EXPECT_EQ(count().scrubbed_files, 0u);
  in_transit.release();
  const auto end = soon();
  while (count().scrub_passes == 0 && Clock::now() < end) c.run_for(Milliseconds(1));
  EXPECT_EQ(count().scrubbed_files, 3u);
}

TEST_F(ScrubberUnit, BeginsBehindItsPlace) {
  spilled();
  core().scrubber.begin(0xFFFF);  // no file's name is behind it
  core().run();
  EXPECT_EQ(count().scrub_passes, 1u);
  EXPECT_EQ(count().scrubbed_files, 0u);
}

TEST_F(ScrubberUnit, KeepsItsPaceAndItsPlace) {
  options_.scrub_bytes_per_second = 1;
  spilled();
  core().scrubber.begin(0);
  core().run_for(Milliseconds(5));
  EXPECT_EQ(count().scrubbed_files, 1u);
  core_.reset();
  EXPECT_NE(core().lane.scrubbed_place(), 0u);
}

TEST_F(ScrubberUnit, WithoutARateOrInADrainItReadsNothing) {
  options_.scrub_bytes_per_second = 0;
  spilled();
  core().scrubber.begin(0);
  core().run();
  EXPECT_EQ(count().scrubbed_files, 0u);
  core_.reset();
  options_.scrub_bytes_per_second = 1ull << 40;
  core().env->drain();
  core().scrubber.begin(0);
  core().run();
  EXPECT_EQ(count().scrubbed_files, 0u);
}

}  // namespace
}  // namespace kv
