// Env: what every owner of the core stands on: options, executors, the ledger, counters, events.
//
// Owners are made with an Env& and call only owners below them (CMakeLists.txt lists them in that
// order). What an owner starts elsewhere comes back to the loop through here, and is dropped unrun
// once the core is closed: so a handler may use `this` of its owner without asking whether it
// lives. Loop thread only, but for jobs themselves.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <memory>
#include <utility>

#include "cachesvc/cache_options.h"
#include "cachesvc/core/counters.h"
#include "cachesvc/loop/post.h"
#include "cachesvc/loop/task.h"
#include "cachesvc/ram_pool.h"

namespace kv {

using Clock = std::chrono::steady_clock;

struct Env : std::enable_shared_from_this<Env> {
  Env(CacheOptions o, boost::asio::any_io_executor l, boost::asio::any_io_executor w,
      boost::asio::any_io_executor d, std::shared_ptr<RamPool> p)
      : options(std::move(o)),
        loop(std::move(l)),
        workers(std::move(w)),
        disk(d ? std::move(d) : workers),
        pool(std::move(p)),
        gate(std::make_shared<LoopGate>(loop)) {}

  const CacheOptions options;
  const boost::asio::any_io_executor loop, workers, disk;
  const std::shared_ptr<RamPool> pool;
  const std::shared_ptr<LoopGate> gate;
  Counters count;

  bool closed() const { return closed_; }
  /// From here on no handler of an owner runs.
  void close() noexcept { closed_ = true; }

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
  /// `handler` later on the loop.
  template <typename Handler>
  void later(Handler handler) {
    boost::asio::post(loop, [weak = weak_from_this(), handler = std::move(handler)]() mutable {
      if (auto self = weak.lock(); self && !self->closed_) handler();
    });
  }
  /// `text()`, if somebody listens.
  template <typename Text>
  void event(EventKind kind, Text text, uint64_t count_of = 1) const {
    if (options.on_event) options.on_event({kind, text(), count_of});
  }

 private:
  bool closed_ = false;
};

}  // namespace kv
