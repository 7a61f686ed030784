// Timer and Ending: what every owner of the core waits and ends with.
#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <memory>

#include "cachesvc/loop/ending.h"
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

TEST(Ending, RunsOnceWhoeverComesFirst) {
  int ran = 0;
  auto count = [&] { ++ran; };
  { Ending dropped(count); }
  EXPECT_EQ(ran, 1);
  {
    Ending called(count);
    called.run();
    called.run();
  }
  EXPECT_EQ(ran, 2);
  {
    Ending moved_from(count);
    Ending moved_to(std::move(moved_from));
    moved_from.run();
    EXPECT_EQ(ran, 2);
  }
  EXPECT_EQ(ran, 3);
  {
    Ending dismissed(count);
    dismissed.dismiss();
  }
  EXPECT_EQ(ran, 3);
}

}  // namespace
}  // namespace kv
