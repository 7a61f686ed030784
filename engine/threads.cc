// The pool's claim protocol. See threads.h.
#include "engine/threads.h"

#include <utility>

#include "proto/status.h"

namespace kv {
namespace {

constexpr int kSpins = 4000;  // some 50 us: longer than the serial work between two loops of a step

// Tells the processor that this thread waits.
inline void pause_processor() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t make_ticket(uint32_t round, uint32_t next, uint32_t tasks) {
  return (uint64_t{round} << 32) | (uint64_t{next} << 16) | tasks;
}

}  // namespace

Threads::Threads(uint32_t threads) {
  KV_CHECK(threads >= 1 && threads <= kMaxEngineThreads);
  for (uint32_t i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
}

Threads::~Threads() {
  stop_.store(true);
  round_.fetch_add(1);
  round_.notify_all();
  for (auto& worker : workers_) worker.join();
}

// Claims the next task of `round`. While a claim is held the round cannot end, so call_ and body_
// are that round's.
bool Threads::take(uint32_t round, uint32_t& task) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (true) {
    uint32_t next = (ticket >> 16) & 0xffff, tasks = ticket & 0xffff;
    if (static_cast<uint32_t>(ticket >> 32) != round || next >= tasks) return false;
    if (ticket_.compare_exchange_weak(ticket, make_ticket(round, next + 1, tasks),
                                      std::memory_order_acq_rel)) {
      task = next;
      return true;
    }
  }
}

void Threads::run_tasks(uint32_t tasks, Call function, const void* body) {
  if (workers_.empty() || tasks <= 1) {
    for (uint32_t i = 0; i < tasks; ++i) function(body, i, 0);
    return;
  }
  call_ = function;
  body_ = body;
  done_.store(0, std::memory_order_relaxed);
  failed_.store(false, std::memory_order_relaxed);
  uint32_t round = round_.load(std::memory_order_relaxed) + 1;
  ticket_.store(make_ticket(round, 0, tasks), std::memory_order_release);
  round_.store(round, std::memory_order_release);
  round_.notify_all();
  uint32_t task = 0;
  while (take(round, task)) run_one(task, 0);
  for (int spins = 0; done_.load(std::memory_order_acquire) != tasks; ++spins) {
    if (spins > kSpins) std::this_thread::yield();
    pause_processor();
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

// The round ends only when every claim is done, whatever came of it: `body_` lies on run's stack.
void Threads::run_one(uint32_t task, uint32_t worker) noexcept {
  try {
    if (!failed_.load(std::memory_order_relaxed)) call_(body_, task, worker);
  } catch (...) {
    if (!failed_.exchange(true)) error_ = std::current_exception();
  }
  done_.fetch_add(1, std::memory_order_acq_rel);
}

void Threads::work(uint32_t worker) {
  uint32_t seen = 0;
  while (true) {
    for (int spins = 0; spins < kSpins && round_.load(std::memory_order_acquire) == seen; ++spins) {
      pause_processor();
    }
    round_.wait(seen, std::memory_order_acquire);
    if (stop_.load()) return;
    seen = round_.load(std::memory_order_acquire);
    uint32_t task = 0;
    while (take(seen, task)) run_one(task, worker);
  }
}

}  // namespace kv
