// Reconciler by itself: what a start adopts, what is read behind it, and what goes.
#include "cachesvc/core/index_bytes.h"
#include "cachesvc/core/paths.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

// An earlier run has left a root with its child, and then a root of its own.
class ReconcilerUnit : public ::testing::Test {
 protected:
  ReconcilerUnit() : options_(small_options(dir_.store())) {
    CoreOwners c(options_);
    RealmState& realm = c.open_model();
    Record& root = c.give_block(realm);
    Record& child = c.give_block(realm, &root);
    names_ = {root.name, child.name, c.give_block(realm).name};
    index_bytes_ = index_bytes(ObjectKind::block, root.ram->tokens);
    for (const ObjectName& name : names_) {
      c.spiller.ask(*c.index.find(name));
      c.spiller.pump();
      c.run();
    }
    EXPECT_EQ(c.records.lists().count(Disk::renamed), names_.size());
  }
  // The catalog is lost: a file is read at once, the others one a second.
  void lose_catalog() {
    ASSERT_TRUE(fs::remove(dir_.store() + "/catalog.db"));
    options_.adopt_at_start = 0;
    options_.reconcile_rate = 1;
  }
  fs::path path(const ObjectName& name) const {
    const std::string file = file_name(name);
    return fs::path(dir_.store()) / file.substr(0, 1) / file;
  }
  size_t indexed(CoreOwners& c) const {
    return static_cast<size_t>(std::count_if(names_.begin(), names_.end(),
                                             [&](const auto& n) { return c.index.find(n); }));
  }
  static std::shared_ptr<CallBase> waiting_call(CoreOwners& c) {
    return c.calls.begin<Status>(*c.calls.connect("test"), soon(), [](Status) {});
  }
  static void run_until_known(CoreOwners& c) {
    const auto end = Clock::now() + std::chrono::seconds(20);
    while (!c.reconciler.all_known() && Clock::now() < end) c.run_for(Milliseconds(1));
    EXPECT_TRUE(c.reconciler.all_known());
  }

  TempDir dir_;
  CacheOptions options_;
  std::vector<ObjectName> names_;  // root, child, other
  uint64_t index_bytes_ = 0;       // of each
};

TEST_F(ReconcilerUnit, AStartKnowsWhatIsThereAndHasReadNoneOfIt) {
  CoreOwners c(options_);
  EXPECT_TRUE(c.reconciler.all_known());
  for (const ObjectName& name : names_) {
    ASSERT_TRUE(c.index.find(name));
    EXPECT_EQ(c.index.find(name)->disk, Disk::known);
    EXPECT_FALSE(c.index.find(name)->ram);
  }
  EXPECT_EQ(parent_of(*c.index.find(names_[1])), c.index.find(names_[0]));
  EXPECT_EQ(c.found.objects(), 3u);
  EXPECT_EQ(c.found.skipped(), 0u);
}

TEST_F(ReconcilerUnit, WithoutItsParentAnObjectServesNothingAndStays) {
  ASSERT_TRUE(fs::remove(path(names_[0])));
  CoreOwners c(options_);
  ASSERT_TRUE(c.index.find(names_[1]));
  EXPECT_EQ(c.index.find(names_[1])->realm, nullptr);
  EXPECT_EQ(c.found.skipped(), 1u);
  EXPECT_TRUE(fs::exists(path(names_[1])));
}

TEST_F(ReconcilerUnit, OverTheIndexShareTheMostRecentStayAndTheOthersFilesGo) {
  options_.index_fraction =
      1.5 * static_cast<double>(index_bytes_) / static_cast<double>(options_.ram_budget_bytes);
  CoreOwners c(options_);
  EXPECT_FALSE(c.index.find(names_[0]));
  EXPECT_FALSE(c.index.find(names_[1]));
  EXPECT_TRUE(c.index.find(names_[2])) << "used last";
  EXPECT_FALSE(fs::exists(path(names_[0])));
  EXPECT_FALSE(fs::exists(path(names_[1])));
  EXPECT_TRUE(fs::exists(path(names_[2])));
}

TEST_F(ReconcilerUnit, WhatTheCatalogLacksIsAMissUntilItIsRead) {
  lose_catalog();
  CoreOwners c(options_);
  EXPECT_FALSE(c.reconciler.all_known());
  EXPECT_LT(indexed(c), names_.size());
  auto call = waiting_call(c);
  c.reconciler.hurry(call);
  c.run();
  EXPECT_TRUE(c.reconciler.all_known()) << "whoever waits for it is spared the pauses";
  EXPECT_EQ(indexed(c), names_.size());
  EXPECT_EQ(c.found.objects(), 3u);
}

TEST_F(ReconcilerUnit, TheHurryEndsWithTheCall) {
  lose_catalog();
  CoreOwners c(options_);
  auto call = waiting_call(c);
  c.reconciler.hurry(call);
  call->fail({StatusCode::unavailable, "ended"});
  c.run();
  EXPECT_FALSE(c.reconciler.all_known());
}

TEST_F(ReconcilerUnit, BytesThatAClientGaveComeBeforeAnUnreadFile) {
  lose_catalog();
  CoreOwners c(options_);
  RealmState& realm = c.open_model();
  Record& root = c.give_block(realm);  // the same bytes, as its generator begins anew
  Record& child = c.give_block(realm, &root);
  ASSERT_EQ(root.name, names_[0]);
  auto call = waiting_call(c);
  c.reconciler.hurry(call);
  c.run();
  for (const Record* given : {&root, &child}) {
    EXPECT_EQ(given->disk, Disk::absent);
    EXPECT_GT(given->file.bytes, 0u) << "an old file, which serves if RAM loses its bytes";
  }
}

TEST_F(ReconcilerUnit, WhatHasGoneMeanwhileDoesNotReturn) {
  lose_catalog();
  CoreOwners c(options_);
  auto gone = std::find_if(names_.begin(), names_.end(),
                           [&](const ObjectName& n) { return !c.index.find(n); });
  ASSERT_NE(gone, names_.end());
  c.lane.lost().note(*gone);
  auto call = waiting_call(c);
  c.reconciler.hurry(call);
  c.run();
  EXPECT_TRUE(c.reconciler.all_known());
  EXPECT_FALSE(c.index.find(*gone));
}

TEST_F(ReconcilerUnit, WaitsForRoomInRam) {
  lose_catalog();
  CoreOwners c(options_);
  RamPool& pool = *c.env->pool;
  Charge others = *pool.try_charge(ChargeKind::session, pool.budget_bytes() - pool.used_bytes());
  const size_t before = indexed(c);
  auto call = waiting_call(c);
  c.reconciler.hurry(call);
  c.run();
  EXPECT_FALSE(c.reconciler.all_known());
  EXPECT_EQ(indexed(c), before);
  others.release();
  run_until_known(c);
  EXPECT_EQ(indexed(c), names_.size());
}

TEST_F(ReconcilerUnit, ADrainEndsTheReading) {
  lose_catalog();
  CoreOwners c(options_);
  c.env->drain();
  auto call = waiting_call(c);
  c.reconciler.hurry(call);
  c.run();
  EXPECT_FALSE(c.reconciler.all_known());
}

}  // namespace
}  // namespace kv
