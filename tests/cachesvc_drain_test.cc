// Drain by itself: what it waits for, and what it leaves.
#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class DrainTest : public ::testing::Test {
 protected:
  std::optional<Status> drain(CoreOwners& c) {
    return c.call<Status>([&](auto done) { c.drain.begin(soon(), done); });
  }
  TempDir dir_;
  std::mt19937 rng_{9};
};

TEST_F(DrainTest, WritesWhatOnlyRamHas) {
  CacheOptions options = small_options(dir_.store());
  options.spill_when = SpillWhen::evict;
  CoreOwners c(options);
  c.open_model();
  c.store(c.connect(), random_tokens(rng_, 40));
  EXPECT_EQ(c.index.tiers().ssd().size(), 0u);
  auto status = drain(c);
  ASSERT_TRUE(status && status->ok());
  EXPECT_EQ(c.index.tiers().ssd().size(), 3u);
}

TEST_F(DrainTest, NewSessionsAndStoresAreRefused) {
  CoreOwners c(small_options());
  c.open_model();
  const uint64_t session = c.connect();
  drain(c);
  EXPECT_EQ(c.calls.connect("late").status().code(), StatusCode::unavailable);
  EXPECT_EQ(c.reserve(session, random_tokens(rng_, 20)).status().code(), StatusCode::unavailable);
}

// The same with an SSD and without one.
TEST_F(DrainTest, WaitsForWhatIsBetweenTwoSteps) {
  for (const std::string& directory : {std::string(), dir_.store()}) {
    CoreOwners c(small_options(directory));
    c.open_model();
    c.eraser.publication_begins("test");
    auto status = std::make_shared<std::optional<Status>>();
    c.drain.begin(soon(), [status](Status s) { *status = std::move(s); });
    c.run_all();
    EXPECT_FALSE(*status) << directory;
    c.eraser.publication_ends("test");
    c.run_all();
    ASSERT_TRUE(*status) << directory;
    EXPECT_TRUE((*status)->ok());
  }
}

TEST_F(DrainTest, ADeviceThatHangsIsNotWaitedForBeyondTheDeadline) {
  CoreOwners c(small_options(dir_.store()));
  c.open_model();
  c.store(c.connect(), random_tokens(rng_, 40));
  c.hangs = true;
  auto status = std::make_shared<std::optional<Status>>();
  c.drain.begin(Clock::now() + Milliseconds(10), [status](Status s) { *status = std::move(s); });
  c.run_for(Milliseconds(30));
  ASSERT_TRUE(*status);
  EXPECT_EQ((*status)->code(), StatusCode::deadline_exceeded);
}

TEST_F(DrainTest, NotReadySaysThatItDrainsOrThatTheDeviceHangs) {
  CacheOptions options = small_options(dir_.store());
  options.io_timeout = Milliseconds(20);
  CoreOwners c(options);
  c.open_model();
  EXPECT_EQ(c.stats.not_ready(), "");
  c.hangs = true;
  c.store(c.connect(), random_tokens(rng_, 40));
  while (!c.lane.hangs()) c.run_for(Milliseconds(1));
  EXPECT_EQ(c.stats.not_ready(), "the SSD hangs");
  c.hangs = false;
  c.run_all();
  EXPECT_EQ(c.stats.not_ready(), "");
  drain(c);
  EXPECT_EQ(c.stats.not_ready(), "draining");
}

}  // namespace
}  // namespace kv
