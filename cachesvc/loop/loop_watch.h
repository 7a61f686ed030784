// LoopWatch: runs the loop and times its handlers. While one runs, every client waits: the longest
// one of late is a gauge (loop_longest_us), those above kLong are counted (loop_over_1ms).
//
// LoopWatch is a service of the io_context, so the loop's executor leads to it. A handler is timed
// from its own begin to its end by the wall clock, so one that waits for a lock, a device or a
// processor shows. Its processor time is told apart (loop_longest_cpu_us, loop_over_1ms_cpu):
// without the scheduler's part. Loop thread only.
#pragma once

#include <algorithm>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <cstdint>
#include <utility>

#include "cachesvc/loop/handler_begins.h"

namespace kv {

class LoopWatch final : public boost::asio::execution_context::service {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kSpan{60};
  static constexpr std::chrono::milliseconds kLong{1};
  /// The time of one handler, or the longest times of several, each by itself.
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

  /// Runs handlers as io.run() does.
  static void run(boost::asio::io_context& io) {
    LoopWatch& watch = of(io);
    while (true) {
      auto asked = thread_time();
      handler_begin.awaited = true;
      if (io.run_one() == 0) return;
      auto end = Clock::now();
      auto cpu_end = thread_time();
      bool known = !std::exchange(handler_begin.awaited, false);
      auto cpu = cpu_end - (known ? handler_begin.cpu : asked);
      watch.note({known ? end - handler_begin.wall : cpu, cpu}, end);
    }
  }
  void note(Took took, Clock::time_point now) {
    turn(now);
    longest_ = longer(longest_, took);
    ++handlers_;
    if (took.wall > kLong) ++over_1ms_;
    if (took.cpu > kLong) ++over_1ms_cpu_;
  }
  /// Longest times of the last one to two kSpans.
  Took longest(Clock::time_point now) {
    turn(now);
    return longer(longest_, before_);
  }
  // Counts since the start.
  uint64_t handlers() const { return handlers_; }
  uint64_t over_1ms() const { return over_1ms_; }          ///< wall clock time
  uint64_t over_1ms_cpu() const { return over_1ms_cpu_; }  ///< processor time

 private:
  void shutdown() override {}
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
  Took longest_, before_;  // this span's; the last one's
  uint64_t handlers_ = 0, over_1ms_ = 0, over_1ms_cpu_ = 0;
};

}  // namespace kv
