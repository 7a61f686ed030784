// ModelRecords by itself: one attempt at a time, what failed is missing, what rotted is written
// anew.
#include "storage/file_names.h"
#include "storage/inspect.h"
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class ModelRecordsTest : public ::testing::Test {
 protected:
  ModelRecordsTest() : core_(options()) {}
  CacheOptions options() {
    CacheOptions o = small_options(dir_.store());
    o.ssd_files = &faults_;
    return o;
  }
  void fail_renames(bool fail) {
    faults_.script = [fail](const char* call, const std::string&) {
      bool fails = fail && std::string(call) == "rename";
      return fails ? Status(StatusCode::io_error, "injected") : Status();
    };
  }
  size_t on_ssd() {
    auto found = inspect_directory(dir_.store(), InspectDepth::headers);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return static_cast<size_t>(std::count_if(found->files.begin(), found->files.end(),
                                             [](const auto& f) { return is_record(f.kind); }));
  }

  TempDir dir_;
  testing::FaultFiles faults_;
  CoreOwners core_;
};

TEST_F(ModelRecordsTest, OneAttemptOfAModelAtATime) {
  core_.open_model();
  ModelState& model = *core_.model;
  EXPECT_TRUE(model.records_durable);
  EXPECT_EQ(on_ssd(), 2u) << "the model's, and its profile";
  core_.hangs = true;
  const uint64_t serial = model.serial;
  for (int i = 0; i < 3; ++i) core_.model_records.write(model);
  EXPECT_EQ(model.serial, serial + 1);
  EXPECT_TRUE(model.records_writing);
  core_.hangs = false;
  core_.run();
  EXPECT_FALSE(model.records_writing);
  EXPECT_TRUE(model.records_durable);
}

TEST_F(ModelRecordsTest, WhatFailedIsMissingAndWrittenWithTheOthersThatAre) {
  fail_renames(true);
  core_.open_model();
  EXPECT_FALSE(core_.model->records_durable || core_.model->records_writing);
  fail_renames(false);
  const int told = core_.progress;
  core_.model_records.write_missing();
  core_.run();
  EXPECT_TRUE(core_.model->records_durable);
  EXPECT_GT(core_.progress, told);
  EXPECT_EQ(on_ssd(), 2u);
}

// The older attempt ends last: it says nothing of the profile that is in force by then.
TEST_F(ModelRecordsTest, AnOlderAttemptSaysNothingOfANewerOne) {
  core_.open_model();
  ModelState& model = *core_.model;
  model.records_durable = false;
  core_.hangs = true;
  core_.model_records.write(model);
  ++model.serial;  // as an open with another profile does
  core_.hangs = false;
  core_.run();
  EXPECT_FALSE(model.records_durable);
}

TEST_F(ModelRecordsTest, ADamagedRecordIsWrittenAnewByItsOwnModelAlone) {
  core_.open_model(plain_model(2, 8));
  auto other = core_.model;
  core_.open_model(plain_model(2, 7));
  const uint64_t serial = core_.model->serial, others = other->serial;
  core_.model_records.rewrite(false, model_id("test", core_.model->spec->fingerprint));
  EXPECT_TRUE(core_.model->records_writing);
  core_.run();
  EXPECT_EQ(core_.model->serial, serial + 1);
  EXPECT_EQ(other->serial, others);
  EXPECT_TRUE(core_.model->records_durable);
}

TEST_F(ModelRecordsTest, AForgottenNamespacesRecordsAreToldAndWrittenWithTheNextObject) {
  core_.open_model();
  EXPECT_TRUE(core_.model_records.forget("other").empty());
  EXPECT_TRUE(core_.model->records_durable);
  core_.models.suspend(true);
  EXPECT_TRUE(core_.model_records.forget("test").empty()) << "an open is under way";
  core_.models.suspend(false);
  EXPECT_EQ(core_.model_records.forget("test"),
            std::vector{model_id("test", core_.model->spec->fingerprint)});
  EXPECT_FALSE(core_.model->records_durable);
}

}  // namespace
}  // namespace kv
