// Threads that run a context to its end.
#include "cachesvc/loop/workers.h"

#include "cachesvc/loop/loop_watch.h"

namespace kv {
void run_loop(boost::asio::io_context& loop) { LoopWatch::run(loop); }

Workers::Workers(size_t threads)
    : jobs_(static_cast<int>(threads)), guard_(boost::asio::make_work_guard(jobs_)) {
  try {
    threads_.reserve(threads);
    while (threads_.size() < threads) {
      threads_.emplace_back([this] { jobs_.run(); });
    }
  } catch (...) {
    stop();
    join();
    throw;
  }
}

Workers::~Workers() {
  stop();
  join();
}

void Workers::join() {
  guard_.reset();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

}  // namespace kv
