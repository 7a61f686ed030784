// Workers: the threads of a cache: one runs its handlers, some run its jobs. A std::bad_alloc that
// no owner has taken (core/env.h) ends the loop's run: it comes out of run_loop().
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <thread>
#include <vector>

namespace kv {

/// Runs handlers, timed by LoopWatch, until the context is stopped or has no more work.
void run_loop(boost::asio::io_context& loop);

class Workers {
 public:
  /// Throws std::system_error without a thread left behind.
  explicit Workers(size_t threads);
  ~Workers();
  Workers(const Workers&) = delete;  // owns threads
  Workers& operator=(const Workers&) = delete;

  boost::asio::io_context::executor_type get_executor() { return jobs_.get_executor(); }
  /// Ends; jobs that have not begun never run.
  void stop() { jobs_.stop(); }
  /// Waits for all jobs.
  void join();

 private:
  boost::asio::io_context jobs_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::vector<std::thread> threads_;
};

}  // namespace kv
