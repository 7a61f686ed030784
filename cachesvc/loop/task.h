// WorkerTask: a job for a worker, and what follows on the loop; all its memory is taken before it
// begins.
//
// Without memory (std::bad_alloc) a process ends by being dropped: a job that finds none has no
// result, or the status `busy` where its result can say so; without a result, what should follow
// is destroyed unrun, on the loop, and what it owned ends: calls answer busy, pins go, half-made
// objects are forgotten. So each step may throw std::bad_alloc, and whoever owns something of a
// process gives it back in its destructor. Internal to cachesvc/.
#pragma once

#include <optional>
#include <type_traits>

#include "cachesvc/loop/post.h"
#include "proto/status.h"

namespace kv {

/// What answers a request for which there was no memory. Takes none itself.
inline Status out_of_memory() { return {StatusCode::busy, "out of memory"}; }

/// Runs `step`. Returns: false if it found no memory: what it was for is left out then.
template <typename Step>
[[nodiscard]] bool if_memory(Step&& step) noexcept {
  try {
    step();
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

/// `arm`, which makes something wait on `loop`; where there is no memory for that, again with the
/// loop's next turn: others are served in between. `arm`'s copies take no memory.
template <typename Arm>
void arm_surely(const boost::asio::any_io_executor& loop, const std::shared_ptr<PostMemory>& memory,
                const Arm& arm) noexcept {
  if (if_memory(arm)) return;
  post_surely(loop, *memory, [loop, memory, arm] { arm_surely(loop, memory, arm); });
}

/// Ends a value on a worker: the system takes milliseconds to get megabytes back. Without memory it
/// ends here.
template <typename T>
void free_on(const boost::asio::any_io_executor& workers, T value) noexcept {
  (void)if_memory([&] {
    auto shared = std::make_shared<T>(std::move(value));
    boost::asio::post(workers, [shared = std::move(shared)]() mutable { shared.reset(); });
  });
}

class WorkerTask : public std::enable_shared_from_this<WorkerTask> {
 public:
  virtual ~WorkerTask() = default;
  WorkerTask(const WorkerTask&) = delete;  // handlers lie in it
  WorkerTask& operator=(const WorkerTask&) = delete;
  /// To a worker of its own.
  void submit(const boost::asio::any_io_executor& workers) {
    post_surely(workers, memory_, [self = shared_from_this()] { self->run(); });
  }
  /// On this worker: the job, then what follows is on its way to the loop.
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
  std::shared_ptr<WorkerTask> next_;  // in a Lane
  uint64_t after_ = 0;                // its fence: front tasks that have begun
  PostMemory memory_;
};

/// `Owner` has `closed()`: what follows runs only while it lives and isn't closed.
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
    if (owner && !owner->closed() && out_) then(std::move(*out_));
  }

 private:
  std::weak_ptr<Owner> owner_;
  std::optional<Job> job_;
  std::optional<Then> then_;
  std::optional<Out> out_;
};

}  // namespace kv
