// RamChecks by itself: whose turn it is, and what becomes of a damaged object.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/cachesvc_verify.h"

namespace kv {
namespace {

class RamChecksUnit : public ::testing::Test {
 protected:
  // The check's end: true once what follows has run.
  static bool checked(CoreOwners& c, const Record& record) {
    bool done = false;
    c.checks.check(record, [&] { done = true; });
    EXPECT_FALSE(done) << "on a worker, not at once";
    c.run();
    return done;
  }
  static CacheOptions every(uint32_t uses) {
    CacheOptions options = small_options();
    options.verify_hits = uses;
    return options;
  }
  TempDir dir_;
};

TEST_F(RamChecksUnit, ADamagedObjectWithoutAFileIsGone) {
  CoreOwners c(small_options());
  Record& block = c.give_block(c.open_model());
  const ObjectName name = block.name;
  flip(*block.ram);
  EXPECT_TRUE(checked(c, block));
  EXPECT_EQ(c.index.find(name), nullptr);
  EXPECT_EQ(c.env->count.ram_damaged, 1u);
}

TEST_F(RamChecksUnit, TheFileOfADamagedObjectServes) {
  CoreOwners c(small_options(dir_.store()));
  Record& block = c.give_block(c.open_model());
  c.spiller.ask(block);
  c.spiller.pump();
  c.run();
  flip(*block.ram);
  EXPECT_TRUE(checked(c, block));
  EXPECT_FALSE(block.ram);
  EXPECT_EQ(block.disk, Disk::renamed);
}

TEST_F(RamChecksUnit, ASoundOneStays) {
  CoreOwners c(small_options());
  Record& block = c.give_block(c.open_model());
  EXPECT_TRUE(checked(c, block));
  EXPECT_TRUE(block.ram);
  EXPECT_EQ(c.env->count.ram_verified, 1u);
  EXPECT_EQ(c.env->count.ram_damaged, 0u);
}

// The check began with other bytes than RAM has at its end.
TEST_F(RamChecksUnit, WhatCameInItsPlaceMeanwhileStays) {
  CoreOwners c(small_options(dir_.store()));
  Record& block = c.give_block(c.open_model());
  c.spiller.ask(block);
  c.spiller.pump();
  c.run();
  RamObject fresh{std::make_shared<const Object>(*block.ram), block.ram.sum};
  bool done = false;
  flip(*block.ram);
  c.checks.check(block, [&] { done = true; });
  c.recency.leave_ram(block);
  c.records.read(block, fresh);
  c.run();
  EXPECT_TRUE(done);
  EXPECT_TRUE(block.ram);
  EXPECT_EQ(c.env->count.ram_damaged, 0u);
}

TEST_F(RamChecksUnit, EachObjectHasATurnOfItsOwn) {
  CoreOwners c(every(4));
  RealmState& realm = c.open_model();
  Record &one = c.give_block(realm), &other = c.give_block(realm);
  int due = 0;
  for (one.uses = other.uses = 0; one.uses < 8; ++one.uses, ++other.uses) {
    due += c.checks.due(one);
    EXPECT_FALSE(c.checks.due(one) && c.checks.due(other));
  }
  EXPECT_EQ(due, 2);
}

TEST_F(RamChecksUnit, NoneIsDueWithoutRamOrWhereNoneIsChecked) {
  CoreOwners never(every(0));
  EXPECT_FALSE(never.checks.due(never.give_block(never.open_model())));
  CoreOwners always(every(1));
  Record& block = always.give_block(always.open_model());
  EXPECT_TRUE(always.checks.due(block));
  always.index.tiers().drop_ram(block);
  EXPECT_FALSE(always.checks.due(block));
  always.records.remove(block);
}

}  // namespace
}  // namespace kv
