// LoopWatch: runs the loop and times its handlers. While one runs, every client waits: the longest
// one of late is a gauge (loop_longest_us).
//
// A service of the io_context, so whoever has the loop's executor finds it. A handler that was
// ready is timed by the wall clock, so one that waits for a lock or a device shows. The first one
// after the loop had nothing to do is timed by the thread's processor time, as its wait for work
// can't be told from its own otherwise. Loop thread only.
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
    while (true) {
      auto start = Clock::now();
      if (io.poll_one() > 0) {
        auto end = Clock::now();
        watch.note(end - start, end);
        continue;
      }
      auto used = thread_time();
      if (io.run_one() == 0) return;
      watch.note(thread_time() - used, Clock::now());
    }
  }
  void note(std::chrono::nanoseconds took, Clock::time_point now) {
    turn(now);
    longest_ = std::max(longest_, took);
  }
  /// In microseconds, of the last one to two kSpans.
  uint64_t longest_us(Clock::time_point now) {
    turn(now);
    auto us = std::chrono::duration_cast<std::chrono::microseconds>(std::max(longest_, before_));
    return static_cast<uint64_t>(us.count());
  }

 private:
  void shutdown() override {}
  static std::chrono::nanoseconds thread_time() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
  }
  void turn(Clock::time_point now) {
    if (now < begun_ + kSpan) return;
    before_ = now < begun_ + 2 * kSpan ? longest_ : std::chrono::nanoseconds(0);
    longest_ = std::chrono::nanoseconds(0);
    begun_ = now;
  }

  Clock::time_point begun_{};
  std::chrono::nanoseconds longest_{0}, before_{0};  // of the span that has begun; of the last one
};

}  // namespace kv
