// LoopWatch: how long each handler of the loop took, by the clock and of the processor.
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "cachesvc/loop/loop_watch.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

TEST(LoopWatch, TellsTheLongestOfTheLastMinutes) {
  boost::asio::io_context io;
  LoopWatch& watch = LoopWatch::of(io);
  using std::chrono::microseconds, std::chrono::seconds;
  LoopWatch::Clock::time_point now{std::chrono::hours(9)};
  auto expect = [&](seconds later, int64_t wall, int64_t cpu) {
    LoopWatch::Took longest = watch.longest(now + later);
    EXPECT_EQ(longest.wall, microseconds(wall)) << later.count();
    EXPECT_EQ(longest.cpu, microseconds(cpu)) << later.count();
  };
  expect(seconds(0), 0, 0);
  watch.note({microseconds(30), microseconds(20)}, now);
  watch.note({microseconds(500), microseconds(10)}, now + seconds(1));
  watch.note({microseconds(40), microseconds(39)}, now + seconds(2));
  expect(seconds(2), 500, 39);
  expect(seconds(2), 500, 39);  // to all who ask
  watch.note({microseconds(70), microseconds(60)}, now + seconds(61));
  expect(seconds(119), 500, 60);
  expect(seconds(121), 70, 60);
  expect(seconds(300), 0, 0);
  watch.note({microseconds(90), microseconds(80)}, now + seconds(400));
  expect(seconds(521), 0, 0);  // and nobody had asked meanwhile
}

TEST(LoopWatch, CountsWhatIsLongByEitherClock) {
  boost::asio::io_context io;
  LoopWatch& watch = LoopWatch::of(io);
  using std::chrono::microseconds;
  LoopWatch::Clock::time_point now{std::chrono::hours(9)};
  watch.note({microseconds(1000), microseconds(1000)}, now);
  watch.note({microseconds(1001), microseconds(5)}, now);
  watch.note({microseconds(3), microseconds(3)}, now + std::chrono::hours(1));
  watch.note({microseconds(1500), microseconds(1001)}, now + std::chrono::hours(1));
  EXPECT_EQ(watch.handlers(), 4u);
  EXPECT_EQ(watch.over_1ms(), 2u);
  EXPECT_EQ(watch.over_1ms_cpu(), 1u);
}

void spin_3ms() {  // of the thread's time
  for (auto begin = thread_time(); thread_time() - begin < Milliseconds(3);) {
  }
}

// Its waits are none of the processor's; ready at once, or what ends the loop's own wait.
TEST(LoopWatch, TimesAHandlerFromItsBeginByBothClocks) {
  for (Milliseconds before : {Milliseconds(0), Milliseconds(200)}) {
    SCOPED_TRACE(before.count());
    boost::asio::io_context io;
    auto begin = LoopWatch::Clock::now();
    boost::asio::steady_timer timer(io, before);
    timer.async_wait([](boost::system::error_code) {
      std::this_thread::sleep_for(Milliseconds(30));
      spin_3ms();
    });
    LoopWatch::run(io);
    auto all = LoopWatch::Clock::now() - begin;
    LoopWatch& watch = LoopWatch::of(boost::asio::any_io_executor(io.get_executor()));
    LoopWatch::Took longest = watch.longest(LoopWatch::Clock::now());
    EXPECT_GE(longest.wall, Milliseconds(33));
    EXPECT_LE(longest.wall, all - before);
    EXPECT_GE(longest.cpu, Milliseconds(3));
    EXPECT_LE(longest.cpu, longest.wall - Milliseconds(30));
    EXPECT_EQ(watch.handlers(), 1u);
    EXPECT_EQ(watch.over_1ms(), 1u);
    EXPECT_EQ(watch.over_1ms_cpu(), 1u);
  }
}

TEST(LoopWatch, TimesEachHandlerByItself) {
  boost::asio::io_context io;
  for (int i = 0; i < 20; ++i) boost::asio::post(io, spin_3ms);
  LoopWatch::run(io);
  LoopWatch::Took longest = LoopWatch::of(io).longest(LoopWatch::Clock::now());
  EXPECT_GE(longest.cpu, Milliseconds(3));
  EXPECT_LT(longest.cpu, Milliseconds(30)) << "half of what all took";
  EXPECT_EQ(LoopWatch::of(io).handlers(), 20u);
  EXPECT_EQ(LoopWatch::of(io).over_1ms_cpu(), 20u);
}

// A descriptor that becomes ready while nobody waits for it wakes the loop and begins no handler.
TEST(LoopWatch, LeavesOutWhatWakesTheLoopForNoHandler) {
  boost::asio::io_context io;
  boost::asio::local::stream_protocol::socket ours(io), theirs(io);
  boost::asio::local::connect_pair(ours, theirs);
  ours.async_wait(boost::asio::socket_base::wait_read, [](boost::system::error_code) {});
  ASSERT_EQ(::write(theirs.native_handle(), "x", 1), 1);
  LoopWatch::run(io);  // from now on the reactor is told of every byte that comes
  io.restart();
  auto guard = boost::asio::make_work_guard(io);
  std::thread peer([&] {
    for (int i = 0; i < 200; ++i) {  // fewer than the socket holds
      EXPECT_EQ(::write(theirs.native_handle(), "x", 1), 1);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    boost::asio::post(io, [&] { guard.reset(); });
  });
  auto before = thread_time();
  LoopWatch::run(io);
  auto used = thread_time() - before;
  peer.join();
  EXPECT_LT(LoopWatch::of(io).longest(LoopWatch::Clock::now()).cpu, used / 2);
}

TEST(LoopWatch, IsAGaugeOfTheCache) {
  auto cache = open_cache(small_options());
  auto b = Bench::open(*cache, plain_model());
  std::mt19937 rng(8);
  ASSERT_TRUE(b.store(random_tokens(rng, 64)).ok());
  EXPECT_GT(b.stat("loop_longest_us"), 0u);
  EXPECT_GT(b.stat("loop_longest_cpu_us"), 0u);
  EXPECT_GT(b.stat("loop_handlers"), 5u);
  EXPECT_GT(b.stat("loop_handlers"), b.stat("loop_over_1ms"));
  uint64_t of_the_processor = b.stat("loop_over_1ms_cpu");
  EXPECT_GE(b.stat("loop_over_1ms"), of_the_processor);
}

}  // namespace
}  // namespace kv
