// Env: the base of every owner of the core: options, executors, the ledger, counters, measures,
// events, and the core's phase.
//
// Owners are made with an Env& and call only owners below them (tools/tidy.py has their floors).
// Each step of the loop runs in run(): a verb, what follows a job, a timer, a wake. So there is one
// place where a failed small allocation ends the core, and a handler may use `this` of its owner
// without asking whether it lives: once the core is closed no step runs. An owner that has changed
// something calls progress() and need not know who waits for it.
//
//   serving ──drain──> draining ──┐
//      └──────────────────────────┴──the owner closes it, or no memory──> closed
//
// Loop thread only, but for the jobs themselves.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <new>
#include <utility>

#include "cachesvc/cache_options.h"
#include "cachesvc/core/counters.h"
#include "cachesvc/core/measures.h"
#include "cachesvc/core/namespaces.h"
#include "cachesvc/loop/post.h"
#include "cachesvc/loop/task.h"
#include "cachesvc/ram_pool.h"
#include "proto/unix_ms.h"

namespace kv {

using Clock = std::chrono::steady_clock;

class Env : public std::enable_shared_from_this<Env> {
 public:
  enum class Phase : uint8_t { serving, draining, closed };

  Env(CacheOptions o, boost::asio::any_io_executor l, boost::asio::any_io_executor w,
      boost::asio::any_io_executor d, std::shared_ptr<RamPool> p)
      : options(std::move(o)),
        namespaces(options.quotas, guest_quota(options)),
        loop(std::move(l)),
        workers(std::move(w)),
        disk(d ? std::move(d) : workers),
        pool(std::move(p)),
        gate(std::make_shared<LoopGate>(loop)) {}
  Env(const Env&) = delete;  // owners point here
  Env& operator=(const Env&) = delete;

  const CacheOptions options;
  const Namespaces namespaces;
  const boost::asio::any_io_executor loop, workers, disk;
  const std::shared_ptr<RamPool> pool;
  const std::shared_ptr<LoopGate> gate;  ///< for objects that outlive the core, as leases do
  mutable Counters count;
  mutable Measures measures;
  /// The time of day.
  std::chrono::system_clock::time_point wall_now() const {
    return options.wall_clock ? options.wall_clock() : std::chrono::system_clock::now();
  }
  /// The same in milliseconds since 1970.
  uint64_t wall_ms() const { return unix_ms(wall_now()); }
  /// Whole seconds since the core began, at least 1.
  uint32_t seconds() const {
    return 1 + static_cast<uint32_t>((Clock::now() - began_) / std::chrono::seconds(1));
  }
  /// Milliseconds of a clock that wraps after 49 days.
  uint32_t milliseconds() const {
    return static_cast<uint32_t>((Clock::now() - began_) / std::chrono::milliseconds(1));
  }

  /// Sets what the core does when something has moved, when room was given back that somebody waits
  /// for, and when a small allocation has failed. Called once, before the first step.
  void begin(std::function<void()> on_progress, std::function<void()> on_room,
             std::function<void()> on_no_memory) {
    progress_ = std::make_shared<Wake>(gate, handler(std::move(on_progress)));
    room_ = std::make_shared<Wake>(gate, handler(std::move(on_room)));
    on_no_memory_ = std::move(on_no_memory);
  }
  bool draining() const { return phase_ != Phase::serving; }
  bool closed() const { return phase_ == Phase::closed; }
  void drain() {
    if (phase_ == Phase::serving) phase_ = Phase::draining;
  }
  void close() {
    phase_ = Phase::closed;
    gate->close();
  }

  /// Has every owner that waits check again soon: something has changed.
  void progress() { progress_->ask(); }
  /// Wakes RamRoom if a request waits: bytes or pins were given back.
  void room_freed() {
    if (room_wanted) room_->ask();
  }
  const std::shared_ptr<Wake>& room_wake() const { return room_; }
  bool room_wanted = false;  ///< a request waits for room; written by RamRoom alone

  /// Runs a step of the loop. If it finds no memory the core ends; of nested steps the outermost
  /// ends it.
  template <typename Step>
  void run(Step&& step) {
    if (running_) return step();
    running_ = true;
    try {
      step();
    } catch (const std::bad_alloc&) {
      running_ = false;
      return no_memory();
    } catch (...) {
      running_ = false;
      throw;
    }
    running_ = false;
  }
  void no_memory() {
    if (!closed()) on_no_memory_();
  }
  /// A handler that runs `step` unless the core is closed by then.
  template <typename Step>
  std::function<void()> handler(Step step) {
    return [weak = weak_from_this(), step = std::move(step)]() mutable {
      if (auto self = weak.lock(); self && !self->closed()) self->run(step);
    };
  }
  /// `job` on a worker, then `then(result)` on the loop.
  template <typename Job, typename Then>
  std::shared_ptr<WorkerTask> task(Job job, Then then) {
    return std::make_shared<TaskOf<Env, Job, Then>>(weak_from_this(), loop, std::move(job),
                                                    std::move(then));
  }
  template <typename Job, typename Then>
  void on_worker(Job job, Then then) {
    task(std::move(job), std::move(then))->submit(workers);
  }
  template <typename Job, typename Then>
  void on_disk(Job job, Then then) {
    task(std::move(job), std::move(then))->submit(disk);
  }
  /// `step` later on the loop.
  template <typename Step>
  void later(Step step) {
    boost::asio::post(loop, [weak = weak_from_this(), step = std::move(step)]() mutable {
      if (auto self = weak.lock(); self && !self->closed()) self->run(step);
    });
  }
  /// ok if a namespace may have one more of `what`. Returns: resource_exhausted, counted.
  Status one_more(const std::string& ns, const char* what, uint32_t NamespaceQuota::*quota,
                  uint64_t used) const {
    Status full = within_quota(ns, what, namespaces.quota(ns).*quota, used, 1);
    if (!full.ok()) ++count.over_quota;
    return full;
  }
  /// Reports `text()`, if events are wanted.
  template <typename Text>
  void event(EventKind kind, Text text, uint64_t count_of = 1) const {
    if (options.on_event) options.on_event({kind, text(), count_of});
  }

 private:
  static NamespaceQuota guest_quota(const CacheOptions& options) {
    NamespaceQuota quota;
    quota.reservations = std::max<uint32_t>(1, static_cast<uint32_t>(options.max_reservations) / 2);
    return quota;
  }

  const Clock::time_point began_ = Clock::now();
  Phase phase_ = Phase::serving;
  bool running_ = false;
  std::shared_ptr<Wake> progress_, room_;
  std::function<void()> on_no_memory_;
};

}  // namespace kv
