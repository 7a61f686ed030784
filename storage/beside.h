// Beside: a job that runs meanwhile on a thread lent by the caller.
//
// Libraries make no threads; callers lend them (RunBeside). The owner never waits for a thread that
// has not come, but does the job itself. So an executor that nobody runs does no harm.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <utility>

namespace kv {

/// Gets a job to another thread, without waiting: it runs there at some time, or never.
using RunBeside = std::function<void(std::function<void()> job)>;

template <typename Out>
class Beside {
 public:
  /// `run`: null if no thread is lent.
  Beside(const RunBeside& run, std::function<Out()> job) : shared_(std::make_shared<Shared>()) {
    shared_->job = std::move(job);
    if (run) run([shared = shared_] { shared->run(); });
  }
  /// Waits for a job that has begun; one that has not never begins. References of the job may end
  /// then.
  ~Beside() {
    if (!shared_->claim()) shared_->wait();
  }
  Beside(const Beside&) = delete;  // waits for its job
  Beside& operator=(const Beside&) = delete;

  /// The job's result, once. Throws std::bad_alloc if it found no memory.
  Out take() {
    if (shared_->claim()) return shared_->job();
    shared_->wait();
    if (!shared_->out) throw std::bad_alloc();
    return std::move(*shared_->out);
  }

 private:
  enum class Stage : uint8_t { waiting, claimed, running, done };
  struct Shared {
    // True once, for who takes the job out of a lent thread's reach.
    bool claim() { return advance(Stage::waiting, Stage::claimed); }
    bool advance(Stage from, Stage to) {
      std::lock_guard lock(mutex);
      if (stage != from) return false;
      stage = to;
      changed.notify_all();
      return true;
    }
    void run() {
      if (!advance(Stage::waiting, Stage::running)) return;
      try {
        out.emplace(job());
      } catch (const std::bad_alloc&) {  // take() says so
      }
      advance(Stage::running, Stage::done);
    }
    void wait() {
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return stage != Stage::running; });
    }
    std::function<Out()> job;
    std::optional<Out> out;
    std::mutex mutex;
    std::condition_variable changed;
    Stage stage = Stage::waiting;  // guarded by `mutex`
  };
  std::shared_ptr<Shared> shared_;
};

}  // namespace kv
