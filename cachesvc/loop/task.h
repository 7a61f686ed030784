// WorkerTask: a job for a worker, and its continuation on the loop.
//
// A job returns a value; the continuation gets it on the loop, in a step of the owner (Owner::run),
// or is destroyed unrun once the owner is closed or gone. A job that finds no memory (it asks for
// large pieces: images, decoded planes) has the status `busy` where its result can say so; else its
// owner ends, as it does when a step of the loop finds none. Internal to cachesvc/.
#pragma once

#include <boost/asio/post.hpp>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>

#include "cachesvc/loop/post.h"
#include "proto/status.h"

namespace kv {

/// Answer to a request for which there was no memory; takes none itself.
inline Status out_of_memory() { return {StatusCode::busy, "out of memory"}; }

/// Ends a value on a worker: the system takes milliseconds to get megabytes back.
template <typename T>
void free_on(const boost::asio::any_io_executor& workers, T value) {
  auto shared = std::make_shared<T>(std::move(value));
  boost::asio::post(workers, [shared = std::move(shared)]() mutable { shared.reset(); });
}

class WorkerTask : public std::enable_shared_from_this<WorkerTask> {
 public:
  virtual ~WorkerTask() = default;
  WorkerTask(const WorkerTask&) = delete;  // handlers lie in it
  WorkerTask& operator=(const WorkerTask&) = delete;
  /// Runs the task on a worker.
  void submit(const boost::asio::any_io_executor& workers) {
    post_surely(workers, memory_, [self = shared_from_this()] { self->run(); });
  }
  /// Runs the job on this worker, then posts the continuation to the loop.
  void run() noexcept {
    work();
    post_surely(loop_, memory_, [self = shared_from_this()] { self->conclude(); });
  }

 protected:
  explicit WorkerTask(boost::asio::any_io_executor loop) : loop_(std::move(loop)) {}
  virtual void work() noexcept = 0;
  virtual void conclude() = 0;

 private:
  friend class Lane;
  boost::asio::any_io_executor loop_;
  std::shared_ptr<WorkerTask> next_;  // the next in a Lane
  uint64_t after_ = 0;                // its fence: front tasks that have begun
  PostMemory memory_;
};

/// `Owner` has closed(), run(step) and no_memory().
template <typename Owner, typename Job, typename Then>
class TaskOf final : public WorkerTask {
 public:
  using Out = std::invoke_result_t<Job&>;
  TaskOf(std::weak_ptr<Owner> owner, boost::asio::any_io_executor loop, Job job, Then then)
      : WorkerTask(std::move(loop)),
        owner_(std::move(owner)),
        job_(std::move(job)),
        then_(std::move(then)) {}

 protected:
  void work() noexcept override {
    try {
      out_.emplace((*job_)());
    } catch (const std::bad_alloc&) {
      if constexpr (std::is_constructible_v<Out, Status>) out_.emplace(out_of_memory());
    }
    job_.reset();  // its input is freed here, on the worker
  }
  void conclude() override {
    Then then = std::move(*then_);
    then_.reset();
    auto owner = owner_.lock();
    if (!owner || owner->closed()) return;
    if (!out_) return owner->no_memory();
    owner->run([&] { then(std::move(*out_)); });
  }

 private:
  std::weak_ptr<Owner> owner_;
  std::optional<Job> job_;
  std::optional<Then> then_;
  std::optional<Out> out_;
};

}  // namespace kv
