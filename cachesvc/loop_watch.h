// LoopWatch: runs the loop and times its handlers. While one runs, every client waits: the longest
// one of late is a gauge (loop_longest_us), those above kLong are counted (loop_over_1ms).
//
// A service of the io_context, so whoever has the loop's executor finds it. A handler that was
// ready is timed by the wall clock, so one that waits for a lock, a device or a processor shows.
// The first one after the loop had nothing to do is timed by the thread's processor time, as its
// wait for work can't be told from its own otherwise. What each took of the processor is a gauge of
// its own (loop_longest_cpu_us): the scheduler's part is not in it. Loop thread only.
#pragma once

#include <time.h>

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>

namespace kv {

class LoopWatch final : public boost::asio::execution_context::service {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSpan{60};
  static constexpr std::chrono::milliseconds kLong{1};
  /// Of one handler, or the longest of several, each by itself.
  struct Took {
    std::chrono::nanoseconds wall{0}, cpu{0};
  };
  static inline boost::asio::execution_context::id id;

  explicit LoopWatch(boost::asio::execution_context& loop) : service(loop) {}
  static LoopWatch& of(boost::asio::execution_context& loop) {
    return boost::asio::use_service<LoopWatch>(loop);
  }
  static LoopWatch& of(const boost::asio::any_io_executor& loop) {
    return of(boost::asio::query(loop, boost::asio::execution::context));
  }

  /// As io.run().
  static void run(boost::asio::io_context& io) {
    LoopWatch& watch = of(io);
    auto before = thread_time();
    while (true) {
      auto start = Clock::now();
      bool ready = io.poll_one() > 0;
      if (!ready && io.run_one() == 0) return;
      auto end = Clock::now();
      auto cpu = thread_time() - before;
      before += cpu;
      watch.note({ready ? end - start : cpu, cpu}, end);
    }
  }
  void note(Took took, Clock::time_point now) {
    turn(now);
    longest_ = longer(longest_, took);
    ++handlers_;
    if (took.wall > kLong) ++over_1ms_;
  }
  /// Of the last one to two kSpans.
  Took longest(Clock::time_point now) {
    turn(now);
    return longer(longest_, before_);
  }
  // Since the start.
  uint64_t handlers() const { return handlers_; }
  uint64_t over_1ms() const { return over_1ms_; }

 private:
  void shutdown() override {}
  static std::chrono::nanoseconds thread_time() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  }
  static Took longer(const Took& a, const Took& b) {
    return {std::max(a.wall, b.wall), std::max(a.cpu, b.cpu)};
  }
  void turn(Clock::time_point now) {
    if (now < begun_ + kSpan) return;
    before_ = now < begun_ + 2 * kSpan ? longest_ : Took{};
    longest_ = {};
    begun_ = now;
  }

  Clock::time_point begun_{};
  Took longest_, before_;  // of the span that has begun; of the last one
  uint64_t handlers_ = 0, over_1ms_ = 0;
};

}  // namespace kv
