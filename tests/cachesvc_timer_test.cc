// Timer and Lane: what every owner of the core waits with.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <memory>

#include "cachesvc/loop/lane.h"
#include "cachesvc/loop/timer.h"

namespace kv {
namespace {

using namespace std::chrono_literals;

TEST(Timer, FiresOnceAtItsTime) {
  boost::asio::io_context loop;
  int fired = 0;
  auto begin = Timer::Clock::now();
  Timer timer(loop.get_executor(), [&] { ++fired; });
  timer.arm_in(5ms);
  EXPECT_TRUE(timer.armed());
  loop.run();
  EXPECT_EQ(fired, 1);
  EXPECT_FALSE(timer.armed());
  EXPECT_GE(Timer::Clock::now(), begin + 5ms);
}

TEST(Timer, ArmedAgainItMoves) {
  boost::asio::io_context loop;
  int fired = 0;
  Timer timer(loop.get_executor(), [&] { ++fired; });
  timer.arm_in(1h);
  timer.arm_in(1ms);  // sooner
  timer.arm_in(5ms);  // later
  auto begin = Timer::Clock::now();
  loop.run();
  EXPECT_EQ(fired, 1);
  EXPECT_GE(Timer::Clock::now(), begin + 4ms);
}

TEST(Timer, MayBeArmedByItsOwnHandler) {
  boost::asio::io_context loop;
  int fired = 0;
  std::unique_ptr<Timer> timer;
  timer = std::make_unique<Timer>(loop.get_executor(), [&] {
    if (++fired < 3) timer->arm_in(0ms);
  });
  timer->arm_in(0ms);
  loop.run();
  EXPECT_EQ(fired, 3);
}

TEST(Timer, CancelledOrGoneItDoesNotFire) {
  boost::asio::io_context loop;
  int fired = 0;
  Timer cancelled(loop.get_executor(), [&] { ++fired; });
  cancelled.arm_in(0ms);
  cancelled.cancel();
  EXPECT_FALSE(cancelled.armed());
  {
    Timer gone(loop.get_executor(), [&] { ++fired; });
    gone.arm_in(0ms);
  }
  loop.run();
  EXPECT_EQ(fired, 0);
  cancelled.arm_in(0ms);
  loop.restart();
  loop.run();
  EXPECT_EQ(fired, 1);
}

TEST(Timer, ItsHandlerMayEndIt) {
  boost::asio::io_context loop;
  int fired = 0;
  std::unique_ptr<Timer> timer;
  timer = std::make_unique<Timer>(loop.get_executor(), [&] {
    timer.reset();
    ++fired;
  });
  timer->arm_in(0ms);
  loop.run();
  EXPECT_EQ(fired, 1);
}

// ---- Lane

class LaneTest : public ::testing::Test {
 protected:
  struct Owner {
    bool closed() const { return false; }
    void no_memory() { ADD_FAILURE(); }
    template <typename Step>
    void run(Step step) {
      step();
    }
  };
  std::shared_ptr<WorkerTask> task(char name) {
    auto job = [this, name] { return order_ += name, true; };
    auto then = [](bool) {};
    return std::make_shared<TaskOf<Owner, decltype(job), decltype(then)>>(
        owner_, loop_.get_executor(), job, then);
  }
  std::string run() {
    loop_.run();
    return order_;
  }
  boost::asio::io_context loop_;
  std::shared_ptr<Owner> owner_ = std::make_shared<Owner>();
  std::shared_ptr<Lane> lane_ = std::make_shared<Lane>(loop_.get_executor());
  std::string order_;
};

TEST_F(LaneTest, BothKindsKeepTheirOrderAndTakeTurns) {
  for (char c : std::string("abcd")) lane_->submit_behind(task(c));
  for (char c : std::string("ABCDEF")) lane_->submit(task(c));
  EXPECT_EQ(run(), "aAbBcCdDEF");
}

TEST_F(LaneTest, AFenceWaitsForTheFrontOfItsTime) {
  for (char c : std::string("ABC")) lane_->submit(task(c));
  lane_->submit_behind(task('a'), true);
  lane_->submit_behind(task('b'));
  lane_->submit(task('D'));
  EXPECT_EQ(run(), "ABCaDb");
}

TEST_F(LaneTest, WhatIsLeftEndsWithIt) {
  std::weak_ptr<WorkerTask> last;
  for (int i = 0; i < 100'000; ++i) {  // no recursion
    auto one = task('x');
    last = one;
    lane_->submit(std::move(one));
  }
  lane_.reset();
  EXPECT_FALSE(last.expired());
  loop_.restart();
  loop_.run_one();
  EXPECT_EQ(order_, "x");
}

}  // namespace
}  // namespace kv
