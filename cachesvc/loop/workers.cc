// Threads that run a context to its end.
#include "cachesvc/loop/workers.h"

#include <new>

#include "cachesvc/loop/loop_watch.h"

namespace kv {
namespace {

template <typename Run>
void run_on(Run run) {
  while (true) {
    try {
      return run();
    } catch (const std::bad_alloc&) {  // of one handler: what it owned has ended by now
    }
  }
}

}  // namespace

void run_loop(boost::asio::io_context& loop) {
  run_on([&] { LoopWatch::run(loop); });
}

Workers::Workers(size_t threads)
    : jobs_(static_cast<int>(threads)), guard_(boost::asio::make_work_guard(jobs_)) {
  try {
    threads_.reserve(threads);
    while (threads_.size() < threads) {
      threads_.emplace_back([this] { run_on([this] { jobs_.run(); }); });
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
