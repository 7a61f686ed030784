// Threads: a small pool for the engine's loops; the caller works along.
//
// run() hands out task numbers one by one, so a late worker never holds up the caller. Which thread
// takes which task is open: tasks must not depend on it. One thread at a time may call run();
// workers spin briefly between calls (a decode step makes some 200 of them), then sleep.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace kv {

inline constexpr uint32_t kMaxEngineThreads = 64;

class Threads {
 public:
  /// `threads`: 1 … kMaxEngineThreads, the caller included.
  explicit Threads(uint32_t threads);
  ~Threads();
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  uint32_t count() const { return static_cast<uint32_t>(workers_.size()) + 1; }

  /// Calls body(task, worker) for every task in [0, tasks); returns when all are done. `worker` is
  /// in [0, count()): an index for scratch memory. tasks < 65,536.
  template <typename Body>
  void run(uint32_t tasks, const Body& body) {
    run_tasks(tasks, &call<Body>, &body);
  }

 private:
  using Call = void (*)(const void* body, uint32_t task, uint32_t worker);
  template <typename Body>
  static void call(const void* body, uint32_t task, uint32_t worker) {
    (*static_cast<const Body*>(body))(task, worker);
  }
  void run_tasks(uint32_t tasks, Call call, const void* body);
  bool take(uint32_t round, uint32_t& task);
  void work(uint32_t worker);

  // round (32 bits) | next task (16) | tasks (16): one word, so that a claim belongs to its round.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> round_{0};  // what sleepers wait on
  std::atomic<uint32_t> done_{0};
  std::atomic<bool> stop_{false};
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace kv
