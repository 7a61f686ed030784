// Env by itself: steps and their end, phases, and what asks the loop to look again.
#include <stdexcept>

#include "tests/support/cachesvc_owners.h"

namespace kv {
namespace {

class EnvUnit : public ::testing::Test {
 protected:
  EnvUnit() {
    env_->begin([this] { ++progress_; }, [this] { ++room_; },
                [this] {
                  ++ended_;
                  env_->close();
                });
  }
  void poll() {
    context_.restart();
    context_.poll();
  }
  static void find_no_memory() { throw std::bad_alloc(); }

  boost::asio::io_context context_;
  std::shared_ptr<Env> env_ =
      std::make_shared<Env>(CacheOptions(), context_.get_executor(), context_.get_executor(),
                            context_.get_executor(), RamPool::create(1 << 20, 1 << 18));
  int progress_ = 0, room_ = 0, ended_ = 0;
};

TEST_F(EnvUnit, TheOutermostStepWithoutMemoryEndsTheCoreOnce) {
  bool passed_on = false;
  env_->run([&] {
    try {
      env_->run(find_no_memory);
    } catch (const std::bad_alloc&) {
      passed_on = true;
      EXPECT_EQ(ended_, 0) << "the outer step has not ended";
      throw;
    }
  });
  EXPECT_TRUE(passed_on);
  EXPECT_EQ(ended_, 1);
  env_->run(find_no_memory);
  EXPECT_EQ(ended_, 1) << "it is closed";
}

TEST_F(EnvUnit, AnotherExceptionPassesAndTheNextStepIsGuarded) {
  auto fail = [] { throw std::runtime_error("other"); };
  EXPECT_THROW(env_->run(fail), std::runtime_error);
  EXPECT_EQ(ended_, 0);
  env_->run(find_no_memory);
  EXPECT_EQ(ended_, 1);
}

TEST_F(EnvUnit, NoStepRunsOnceItIsClosed) {
  int steps = 0;
  auto step = [&] { ++steps; };
  auto handler = env_->handler(step);
  env_->later(step);
  env_->on_worker([] { return true; }, [&](bool) { ++steps; });
  env_->on_disk([] { return true; }, [&](bool) { ++steps; });
  env_->progress();
  env_->close();
  poll();
  handler();
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(progress_, 0);
}

TEST_F(EnvUnit, AHandlerMayOutliveIt) {
  int steps = 0;
  auto handler = env_->handler([&] { ++steps; });
  handler();
  env_.reset();
  handler();
  EXPECT_EQ(steps, 1);
}

TEST_F(EnvUnit, AJobWithoutMemoryIsBusyOrEndsTheCore) {
  Status told;
  auto with_status = []() -> Status { throw std::bad_alloc(); };
  env_->on_worker(with_status, [&](Status s) { told = std::move(s); });
  poll();
  EXPECT_EQ(told.code(), StatusCode::busy);
  EXPECT_EQ(ended_, 0);
  auto without = []() -> int { throw std::bad_alloc(); };
  env_->on_worker(without, [](int) { ADD_FAILURE() << "there is no result"; });
  poll();
  EXPECT_EQ(ended_, 1);
}

TEST_F(EnvUnit, ProgressIsOneStepForAllThatAskedAndRoomOnlyWhereItIsWanted) {
  for (int i = 0; i < 3; ++i) env_->progress();
  env_->room_freed();
  EXPECT_EQ(progress_, 0) << "soon, not at once";
  poll();
  EXPECT_EQ(progress_, 1);
  EXPECT_EQ(room_, 0);
  env_->room_wanted = true;
  env_->room_freed();
  poll();
  EXPECT_EQ(room_, 1);
}

TEST_F(EnvUnit, PhasesGoOneWay) {
  EXPECT_FALSE(env_->draining());
  env_->drain();
  EXPECT_TRUE(env_->draining());
  EXPECT_FALSE(env_->closed());
  env_->close();
  env_->drain();
  EXPECT_TRUE(env_->closed());
}

}  // namespace
}  // namespace kv
