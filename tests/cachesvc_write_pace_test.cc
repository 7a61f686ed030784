// WritePace by itself: what was written holds up what comes, also after a restart. How a budget
// counts: cachesvc_write_budget_test.cc.
#include "cachesvc/core/write_pace.h"
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class WritePaceTest : public ::testing::Test {
 protected:
  CacheOptions options(uint64_t second, uint64_t day) {
    CacheOptions o = small_options(dir_.store());
    o.write_bytes_per_second = second;
    o.write_bytes_per_day = day;
    return o;
  }
  // Something is written, and counted.
  static void write(CoreOwners& c) {
    c.open_model();
    c.pace.charge();
  }
  TempDir dir_;
};

TEST_F(WritePaceTest, WithoutALimitNothingIsHeld) {
  CoreOwners c(options(0, 0));
  write(c);
  EXPECT_FALSE(c.pace.limited());
  EXPECT_TRUE(c.pace.may_write());
  EXPECT_FALSE(c.pace.held() || c.pace.held_beyond(Milliseconds(0)));
  EXPECT_GT(c.pace.day_bytes(), 0u);
}

TEST_F(WritePaceTest, WhatWasWrittenHoldsUpTheNextWriteAndProgressFollowsWhenItMay) {
  CoreOwners c(options(100'000, 0));
  write(c);
  ASSERT_FALSE(c.pace.may_write());
  EXPECT_FALSE(c.pace.may_write());
  EXPECT_TRUE(c.pace.held());
  EXPECT_EQ(c.env->count.spills_held, 1u) << "once for each time that is waited for";
  c.run();
  const int told = c.progress;
  while (c.pace.held()) c.run_for(Milliseconds(10));
  EXPECT_GT(c.progress, told);
  EXPECT_TRUE(c.pace.may_write());
}

TEST_F(WritePaceTest, ChargesWhatIsNewAlone) {
  CoreOwners c(options(0, 1ull << 40));
  write(c);
  const uint64_t spent = c.pace.day_bytes();
  c.pace.charge();
  EXPECT_EQ(c.pace.day_bytes(), spent) << "nothing was written since";
}

TEST_F(WritePaceTest, ASpentDayIsHeldBeyondAnyWaitAndAfterARestart) {
  uint64_t spent = 0;
  {
    CoreOwners c(options(0, 1));
    EXPECT_FALSE(c.pace.held_beyond(Milliseconds(0)));
    write(c);
    spent = c.pace.day_bytes();
    EXPECT_TRUE(c.pace.held_beyond(std::chrono::minutes(1)));
    auto sync = [ssd = c.lane.ssd()] { return ssd->checkpoint(); };
    c.lane.run(sync, [](Status status) { EXPECT_TRUE(status.ok()); });
    c.run();
  }
  CoreOwners c(options(0, 1));
  EXPECT_GE(c.pace.day_bytes(), spent);
  EXPECT_FALSE(c.pace.may_write());
}

}  // namespace
}  // namespace kv
