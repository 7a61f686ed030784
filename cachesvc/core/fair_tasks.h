// FairTasks: jobs of several namespaces for the same threads. A few are under way at a time. The
// next is one of the namespace that has had least, so a thousand jobs of one delay another's by a
// few. Loop thread only.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>
#include <string>
#include <utility>

#include "cachesvc/loop/fair_queue.h"
#include "cachesvc/loop/task.h"

namespace kv {

class FairTasks {
 public:
  /// Jobs under way for each thread: enough that none waits for the loop.
  static constexpr size_t kPerThread = 4;

  FairTasks(boost::asio::any_io_executor to, size_t threads)
      : to_(std::move(to)), most_(threads * kPerThread) {}
  FairTasks(const FairTasks&) = delete;  // steps after its tasks point here
  FairTasks& operator=(const FairTasks&) = delete;

  /// The task's step on the loop calls ended() first. `bytes`: the cost of its job.
  void submit(const std::string& ns, uint64_t bytes, std::shared_ptr<WorkerTask> task) {
    waiting_.push(ns, {bytes, std::move(task)});
    go_on();
  }
  void ended() {
    --under_way_;
    go_on();
  }
  /// Tasks that have not begun never will.
  void close() { waiting_ = {}; }
  /// Ends the process if one waits without need, or too many run.
  void check_invariants() const {
    KV_CHECK(under_way_ <= most_ && (waiting_.empty() || under_way_ == most_));
  }

 private:
  struct Waiting {
    uint64_t bytes;
    std::shared_ptr<WorkerTask> task;
  };
  void go_on() {
    while (under_way_ < most_ && !waiting_.empty()) {
      auto [ns, next] = waiting_.pop();
      waiting_.spend(ns, next.bytes);
      ++under_way_;
      next.task->submit(to_);
    }
  }

  const boost::asio::any_io_executor to_;
  const size_t most_;
  size_t under_way_ = 0;
  FairQueue<std::string, Waiting> waiting_;
};

}  // namespace kv
