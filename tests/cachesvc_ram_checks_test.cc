// RamChecks by itself: whose turn it is, and what becomes of a damaged object.
#include "tests/support/cachesvc_owners.h"
#include "tests/support/cachesvc_verify.h"

namespace kv {
namespace {

class RamChecksUnit : public ::testing::Test {
 protected:
  // The check's end: true once what follows has run.
  static bool checked(CoreOwners& c, Record& record) {
    bool done = false;
    c.checks.check({&record}, [&] { done = true; });
    EXPECT_FALSE(done) << "on a worker, not at once";
    c.run();
    return done;
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
  c.checks.check({&block}, [&] { done = true; });
  c.recency.leave_ram(block);
  c.records.read(block, fresh);
  c.run();
  EXPECT_TRUE(done);
  EXPECT_TRUE(block.ram);
  EXPECT_EQ(c.env->count.ram_damaged, 0u);
}

TEST_F(RamChecksUnit, OnlyTheDamagedOneOfSeveralLeaves) {
  CoreOwners c(small_options());
  RealmState& realm = c.open_model();
  Record &one = c.give_block(realm), &other = c.give_block(realm);
  const ObjectName damaged = one.name;
  flip(*one.ram);
  c.checks.check({&one, &other}, [] {});
  c.run();
  EXPECT_EQ(c.index.find(damaged), nullptr);
  EXPECT_TRUE(other.ram);
  EXPECT_EQ(c.env->count.ram_verified, 2u);
}

TEST_F(RamChecksUnit, AnObjectIsDueOnceItsLastCheckIsLongAgo) {
  CacheOptions options = small_options();
  options.verify_after = Milliseconds(1000);
  CoreOwners c(options);
  RealmState& realm = c.open_model();
  const auto before = Clock::now();
  Record& block = c.give_block(realm);
  const auto in_ram_since = block.use.checked;
  EXPECT_GE(in_ram_since, before);
  EXPECT_FALSE(c.checks.due(block, in_ram_since + Milliseconds(999)));
  EXPECT_TRUE(c.checks.due(block, in_ram_since + Milliseconds(1000)));
  EXPECT_TRUE(checked(c, block));
  EXPECT_GT(block.use.checked, in_ram_since);
  EXPECT_FALSE(c.checks.due(block, block.use.checked + Milliseconds(999)));
  c.index.tiers().drop_ram(block);
  EXPECT_FALSE(c.checks.due(block, block.use.checked + Milliseconds(1000)));
  c.records.remove(block);
}

}  // namespace
}  // namespace kv
