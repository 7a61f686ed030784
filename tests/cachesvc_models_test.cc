// Models by itself: who rests, who stays, and what models share.
#include "storage/inspect.h"
#include "tests/support/cachesvc_owners.h"
#include "tests/support/storage_testing.h"

namespace kv {
namespace {

class ModelsUnit : public ::testing::Test {
 protected:
  CacheOptions options(uint32_t max_models = 256) {
    CacheOptions o = small_options(dir_.store());
    o.ssd_files = &faults_;
    o.max_models = max_models;
    return o;
  }
  static Models::Key key_of(const ModelSpec& spec) { return {"test", spec.fingerprint}; }
  size_t records_on_ssd() {
    auto found = inspect_directory(dir_.store(), InspectDepth::headers);
    EXPECT_TRUE(found.ok()) << found.status().to_string();
    return static_cast<size_t>(std::count_if(found->files.begin(), found->files.end(),
                                             [](const auto& f) { return is_record(f.kind); }));
  }
  // Its last session ends.
  static void leave(CoreOwners& c) {
    c.model.reset();
    c.models.rest_unused();
    c.run();
  }

  TempDir dir_;
  testing::FaultFiles faults_;
  const ModelSpec spec_ = plain_model();
  const Models::Key key_ = key_of(spec_);
};

TEST_F(ModelsUnit, OneThatNobodyUsesRestsAndItsRecordsStay) {
  CoreOwners c(options());
  c.open_model(spec_);
  const Id profile = c.model->realm->realm.profile;
  leave(c);
  EXPECT_EQ(c.models.find(key_), nullptr);
  ASSERT_NE(c.models.resting(key_), nullptr);
  EXPECT_EQ(c.models.resting(key_)->profile, profile);
  EXPECT_EQ(records_on_ssd(), 2u) << "of the model, and its profile";
  c.open_model(spec_);
  EXPECT_EQ(c.models.resting(key_), nullptr);
  EXPECT_NE(c.models.find(key_), nullptr);
}

// Steps, as others are served while a realm of many objects gets its place.
TEST_F(ModelsUnit, ObjectsUnderAProfileNoLongerInForceGoFirst) {
  CoreOwners c(options());
  ModelSpec second = plain_model();
  second.fingerprint.bytes[0] ^= 1;
  Record& oldest = c.give_block(c.open_model(second));
  const auto keep = c.model;
  RealmState& realm = c.open_model(spec_);
  for (int i = 0; i < 300; ++i) c.give_block(realm);
  auto going_before_oldest = [&] {
    const auto order = c.index.tiers().ram().next_victims(UINT64_MAX, true).keys;
    return std::find(order.begin(), order.end(), oldest.key) - order.begin();
  };
  EXPECT_EQ(going_before_oldest(), 0);
  auto charge = c.env->pool->try_charge(ChargeKind::model, 8u << 20);
  auto other = make_coded_model(spec_, *make_profile(spec_, 4), *charge);
  ASSERT_TRUE(other.ok()) << other.status().to_string();
  c.model = c.models.put_in_force("test", c.models.shared(std::move(*other)), {});
  EXPECT_LT(going_before_oldest(), 300) << "one step had all of them";
  c.run();
  EXPECT_EQ(going_before_oldest(), 300);
}

TEST_F(ModelsUnit, OneThatIsHeldOrStoredOfStays) {
  CoreOwners c(options());
  RealmState& realm = c.open_model(spec_);
  c.models.rest_unused();
  EXPECT_NE(c.models.find(key_), nullptr) << "a session has it";
  Record& block = c.give_block(realm);
  leave(c);
  EXPECT_NE(c.models.find(key_), nullptr) << "a block is stored of it";
  EXPECT_EQ(c.models.of(block), c.models.find(key_));
  c.records.remove(block);
  c.models.suspend(true);
  leave(c);
  EXPECT_NE(c.models.find(key_), nullptr) << "an open is under way";
  c.models.suspend(false);
  leave(c);
  EXPECT_EQ(c.models.find(key_), nullptr);
}

TEST_F(ModelsUnit, WithoutItsRecordsOneIsForgotten) {
  CoreOwners c(small_options());
  c.open_model(spec_);
  leave(c);
  EXPECT_EQ(c.models.find(key_), nullptr);
  EXPECT_EQ(c.models.resting(key_), nullptr);
}

TEST_F(ModelsUnit, OneOverTheMaximumIsBusyUnlessSomeoneRests) {
  CoreOwners c(options(1));
  c.open_model(spec_);
  Status full = c.models.place_for("test");
  EXPECT_EQ(full.code(), StatusCode::busy);
  EXPECT_NE(full.message().find("max_models 1"), std::string::npos) << full.message();
  leave(c);
  EXPECT_TRUE(c.models.place_for("test").ok());
  c.run();
  EXPECT_EQ(c.models.resting(key_), nullptr);
  EXPECT_EQ(records_on_ssd(), 0u) << "they went with it";
}

TEST_F(ModelsUnit, TheirShareOfRamIsBusyOrCanNeverDo) {
  CoreOwners c(small_options());
  c.open_model(spec_);
  const uint64_t limit = c.env->pool->budget_bytes() / 4;
  EXPECT_EQ(c.models.room_for("m", limit + 1).code(), StatusCode::resource_exhausted);
  EXPECT_EQ(c.models.room_for("m", limit).code(), StatusCode::busy);
  c.model.reset();
  c.run();
  (void)c.models.room_for("m", limit);  // it rests, and its bytes come back on a worker
  c.run();
  EXPECT_TRUE(c.models.room_for("m", limit).ok());
}

TEST_F(ModelsUnit, OneAttemptOfItsRecordsAtATimeAndAnotherAfterAFailure) {
  faults_.script = [](const char* call, const std::string&) {
    bool fails = std::string(call) == "rename";
    return fails ? Status(StatusCode::io_error, "injected") : Status();
  };
  CoreOwners c(options());
  c.open_model(spec_);
  EXPECT_FALSE(c.model->records_durable);
  EXPECT_FALSE(c.model->records_writing);
  faults_.script = nullptr;
  const uint64_t serial = c.model->serial;
  c.model_records.write_missing();
  c.model_records.write(*c.model);
  EXPECT_EQ(c.model->serial, serial + 1);
  EXPECT_FALSE(c.model->records_durable) << "not yet";
  c.run();
  EXPECT_TRUE(c.model->records_durable);
  EXPECT_EQ(records_on_ssd(), 2u);
}

TEST_F(ModelsUnit, AnErasedNamespaceLosesItsRecordsAndNoOther) {
  CoreOwners c(options());
  c.open_model(spec_);
  EXPECT_TRUE(c.model_records.forget("other").empty());
  EXPECT_TRUE(c.model->records_durable);
  EXPECT_EQ(c.model_records.forget("test"), std::vector{model_id("test", spec_.fingerprint)});
  EXPECT_FALSE(c.model->records_durable) << "written anew with its next object";
}

TEST_F(ModelsUnit, TheSameModelIsInMemoryOnce) {
  CoreOwners c(small_options());
  c.open_model(spec_);
  auto first = c.model->coded;
  c.open_model(spec_);
  EXPECT_EQ(c.model->coded, first);
}

}  // namespace
}  // namespace kv
