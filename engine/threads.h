// Threads: a small pool for the engine's loops; the caller works along.
//
// run() hands out task numbers one by one, so a late worker never holds up the caller. Which thread
// takes which task is open: tasks must not depend on it. What a task throws, run() throws once no
// task runs any more. One thread at a time may call run(); workers spin briefly between calls (a
// decode step makes some 200 of them), then sleep.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
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
  /// in [0, count()): an index for scratch memory. If one throws, tasks that were not begun are
  /// left out, and the first of what was thrown is thrown here.
  template <typename Body>
  void run(uint32_t tasks, const Body& body) {
    if (tasks <= kMostClaims) return run_tasks(tasks, &call<Body>, &body);
    const uint32_t step = tasks / kMostClaims + 1;
    auto shares = [&](uint32_t share, uint32_t worker) {
      const uint64_t first = uint64_t{share} * step, end = std::min<uint64_t>(first + step, tasks);
      for (uint64_t i = first; i < end; ++i) body(static_cast<uint32_t>(i), worker);
    };
    run_tasks((tasks - 1) / step + 1, &call<decltype(shares)>, &shares);
  }

 private:
  static constexpr uint32_t kMostClaims = 65535;  // 16 bits of the ticket
  using Call = void (*)(const void* body, uint32_t task, uint32_t worker);
  template <typename Body>
  static void call(const void* body, uint32_t task, uint32_t worker) {
    (*static_cast<const Body*>(body))(task, worker);
  }
  void run_tasks(uint32_t tasks, Call call, const void* body);
  bool take(uint32_t round, uint32_t& task);
  void run_one(uint32_t task, uint32_t worker) noexcept;
  void work(uint32_t worker);

  // round (32 bits) | next task (16) | tasks (16): one word, so that a claim belongs to its round.
  std::atomic<uint64_t> ticket_{0};
  std::atomic<uint32_t> round_{0};  // what sleepers wait on
  std::atomic<uint32_t> done_{0};
  std::atomic<bool> stop_{false}, failed_{false};
  std::exception_ptr error_;  // of the first task that failed: who set failed_ writes it
  Call call_ = nullptr;
  const void* body_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace kv
