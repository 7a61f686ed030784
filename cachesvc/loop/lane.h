// Lane: worker tasks run one after another, in two lists.
//
// The front list runs in the order of its calls, and so does the one behind. While both have tasks
// they take turns: a front task waits for the running one and at most one from behind, and a task
// behind for one front task. Any thread may submit; a task runs on a worker, never two at a time.
// Internal to cachesvc/.
#pragma once

#include <mutex>

#include "cachesvc/loop/task.h"

namespace kv {

class Lane : public std::enable_shared_from_this<Lane> {
 public:
  explicit Lane(boost::asio::any_io_executor workers) : workers_(std::move(workers)) {}
  Lane(const Lane&) = delete;  // handlers lie in it
  Lane& operator=(const Lane&) = delete;
  /// Adds a task to the end of the front list.
  void submit(std::shared_ptr<WorkerTask> task) noexcept {
    std::lock_guard lock(mutex_);
    ++submitted_;
    add(front_, std::move(task));
  }
  /// Adds a task to the end of the list behind; front tasks pass it. `fence`: it runs after the
  /// front tasks of now.
  void submit_behind(std::shared_ptr<WorkerTask> task, bool fence = false) noexcept {
    std::lock_guard lock(mutex_);
    task->after_ = fence ? submitted_ : 0;
    add(behind_, std::move(task));
  }

 private:
  /// First in, first out; takes no memory.
  class List {
   public:
    List() = default;
    List(const List&) = delete;  // ends its tasks
    List& operator=(const List&) = delete;
    ~List() {
      while (first_) first_ = std::move(first_->next_);  // one by one, not each within the last
    }
    bool empty() const { return !first_; }
    const WorkerTask* first() const { return first_.get(); }
    void push(std::shared_ptr<WorkerTask> task) noexcept {
      WorkerTask* last = task.get();
      (last_ ? last_->next_ : first_) = std::move(task);
      last_ = last;
    }
    std::shared_ptr<WorkerTask> pop() noexcept {
      auto task = std::move(first_);
      first_ = std::move(task->next_);
      if (!first_) last_ = nullptr;
      return task;
    }

   private:
    std::shared_ptr<WorkerTask> first_;
    WorkerTask* last_ = nullptr;
  };

  void add(List& list, std::shared_ptr<WorkerTask> task) noexcept {
    list.push(std::move(task));
    if (!std::exchange(running_, true)) go_on();
  }
  void go_on() noexcept {
    post_surely(workers_, memory_, [self = shared_from_this()] { self->run_next(); });
  }
  std::shared_ptr<WorkerTask> next() noexcept {
    std::lock_guard lock(mutex_);
    const bool may = !behind_.empty() && behind_.first()->after_ <= begun_;
    was_behind_ = front_.empty() || (may && !was_behind_);
    if (was_behind_) return behind_.pop();
    ++begun_;
    return front_.pop();
  }
  void run_next() noexcept {
    next()->run();
    std::lock_guard lock(mutex_);
    if (!front_.empty() || !behind_.empty()) return go_on();
    running_ = false;
  }

  boost::asio::any_io_executor workers_;
  std::mutex mutex_;  // guards the members below
  List front_, behind_;
  uint64_t submitted_ = 0, begun_ = 0;  // front tasks
  bool was_behind_ = false;             // the last one that ran was from behind
  bool running_ = false;
  PostMemory memory_;
};

}  // namespace kv
