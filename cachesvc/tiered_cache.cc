// Blocking calls over CacheCore: each posts to the loop and waits for its callback, which the core
// runs by the call's deadline; one that is dropped, for lack of memory, has answered unavailable.
// The process is somebody else's: no call throws for lack of memory, nor does the loop's end leave
// one waiting.
#include "cachesvc/tiered_cache.h"

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <condition_variable>
#include <future>
#include <mutex>
#include <system_error>
#include <thread>

#include "cachesvc/loop/task.h"
#include "cachesvc/loop/workers.h"
#include "proto/into.h"

namespace kv {
namespace {

// Waiter: a caller that waits for its answer; lies on its stack.
template <typename T>
class Waiter {
 public:
  void set(T value) {
    std::lock_guard lock(mutex_);
    value_.emplace(std::move(value));
    there_.notify_one();
  }
  T get() {
    std::unique_lock lock(mutex_);
    there_.wait(lock, [&] { return value_.has_value(); });
    return std::move(*value_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable there_;
  std::optional<T> value_;
};

// The callback's end of it: answers once, at the latest when it is dropped.
template <typename T>
class Answer {
 public:
  explicit Answer(Waiter<T>& waiter) : waiter_(&waiter) {}
  ~Answer() { set(T(Status(StatusCode::unavailable, "out of memory"))); }
  Answer(const Answer&) = delete;  // answers once
  Answer& operator=(const Answer&) = delete;
  void set(T value) {
    if (auto* waiter = std::exchange(waiter_, nullptr)) waiter->set(std::move(value));
  }

 private:
  Waiter<T>* waiter_;
};

}  // namespace

// The loop, its thread and the workers. Shared by all clients of one cache, never by handlers.
class TieredCache::Threads {
 public:
  static Result<std::shared_ptr<Threads>> start(CacheOptions options) {
    KV_RETURN_IF_ERROR(validate(options));
    auto threads = std::shared_ptr<Threads>(new Threads(options));
    Contexts& c = *threads->contexts_;
    KV_ASSIGN_OR_RETURN(threads->core_,
                        CacheCore::create(std::move(options), c.loop.get_executor(),
                                          c.workers.get_executor(), c.disk.get_executor()));
    threads->thread_ = std::thread([own = threads.get()] { own->run(); });
    return threads;
  }
  ~Threads() {
    if (core_ && thread_.joinable()) {
      if (drain_timeout_.count() > 0) (void)drain(deadline_in(drain_timeout_));
      call_surely([this] { core_.reset(); });
    }
    if (drain_timeout_.count() == 0) {
      contexts_->workers.stop();
      contexts_->disk.stop();
    }
    contexts_->workers.join();
    join_disk();
    guard_.reset();
    contexts_->loop.stop();
    if (thread_.joinable()) thread_.join();
  }
  Threads(const Threads&) = delete;  // owns threads
  Threads& operator=(const Threads&) = delete;

  CacheCore& core() { return *core_; }
  /// Runs `start(done)` on the loop and waits until `done` was called.
  template <typename T, typename Start>
  T call(Start start) {
    Waiter<T> waiter;
    try {
      auto answer = std::make_shared<Answer<T>>(waiter);
      boost::asio::post(
          contexts_->loop, [start = std::move(start), answer = std::move(answer)]() mutable {
            start([answer = std::move(answer)](T value) { answer->set(std::move(value)); });
          });
    } catch (const std::bad_alloc&) {  // nothing has begun, and there may be no answer to drop
      return T(Status(StatusCode::unavailable, "out of memory"));
    }
    return waiter.get();
  }
  /// Runs `action` on the loop, soon; never, if there is no memory to say so.
  template <typename Action>
  void post_if_memory(Action action) noexcept {
    try {
      boost::asio::post(contexts_->loop, std::move(action));
    } catch (const std::bad_alloc&) {  // who waits has its deadline
    }
  }
  uint64_t next_tag() { return ++last_tag_; }
  /// Runs `action` on the loop, when there is memory for it.
  template <typename Action>
  void call_surely(Action action) {
    auto run = [&action](auto done) {
      action();
      done(Status());
    };
    while (!call<Status>(run).ok()) std::this_thread::sleep_for(Milliseconds(1));
  }
  Status drain(Deadline deadline) {
    return call<Status>([this, deadline](auto done) { core_->drain(deadline, done); });
  }

 private:
  // A handler that finds no memory ends the core; the loop goes on, for calls are to be answered.
  void run() {
    while (true) {
      try {
        return run_loop(contexts_->loop);
      } catch (const std::bad_alloc&) {
        core_->no_memory();
      }
    }
  }
  explicit Threads(const CacheOptions& options)
      : drain_timeout_(options.drain_timeout),
        io_timeout_(options.io_timeout),
        contexts_(std::make_shared<Contexts>(options)),
        guard_(boost::asio::make_work_guard(contexts_->loop)) {}

  // A device that hangs holds its thread for ever: after io_timeout that thread, and what it still
  // needs, is left to itself.
  void join_disk() {
    std::thread reaper;
    std::future<void> joined;
    try {
      std::promise<void> promise;
      joined = promise.get_future();
      reaper = std::thread([contexts = contexts_, promise = std::move(promise)]() mutable {
        contexts->disk.join();
        promise.set_value();
      });
    } catch (const std::exception&) {  // no memory, no thread: without a limit, then
      return contexts_->disk.join();
    }
    bool hangs = joined.wait_for(io_timeout_) != std::future_status::ready;
    if (hangs) return reaper.detach();
    reaper.join();
  }

  struct Contexts {
    explicit Contexts(const CacheOptions& options)
        : workers(options.workers), disk(options.disk_threads) {}
    boost::asio::io_context loop{1};
    Workers workers, disk;
  };
  Milliseconds drain_timeout_, io_timeout_;
  std::shared_ptr<Contexts> contexts_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_;
  std::unique_ptr<CacheCore> core_;
  std::atomic<uint64_t> last_tag_{0};
  std::thread thread_;
};

Result<std::unique_ptr<TieredCache>> TieredCache::create(CacheOptions options,
                                                         const std::string& ns) {
  try {
    KV_ASSIGN_OR_RETURN(auto threads, Threads::start(std::move(options)));
    KV_ASSIGN_OR_RETURN(uint64_t session, threads->call<Result<uint64_t>>([&](auto done) {
      done(threads->core().connect(ns));
    }));
    return std::unique_ptr<TieredCache>(new TieredCache(std::move(threads), session));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  } catch (const std::system_error& e) {
    return Status(StatusCode::busy, std::string("threads: ") + e.what());
  }
}

TieredCache::TieredCache(std::shared_ptr<Threads> threads, uint64_t session)
    : threads_(std::move(threads)), session_(session) {}

TieredCache::~TieredCache() {
  threads_->call_surely([this] { threads_->core().disconnect(session_); });
}

Result<std::unique_ptr<Client>> TieredCache::connect(const std::string& ns) {
  KV_ASSIGN_OR_RETURN(uint64_t session, threads_->call<Result<uint64_t>>([&](auto done) {
    done(threads_->core().connect(ns));
  }));
  try {
    return std::unique_ptr<Client>(new TieredCache(threads_, session));
  } catch (const std::bad_alloc&) {
    threads_->call_surely([&] { threads_->core().disconnect(session); });
    return out_of_memory();
  }
}

// Runs `start(terms, done)` on the loop and waits until `done` was called. A stop that comes before
// it began is seen there, a later one finds the call by its tag.
template <typename T, typename Start>
T TieredCache::call(const Until& until, Start start) {
  CallTerms terms(until.deadline);
  auto run = [&](auto done) {
    until.stop.stop_requested() ? done(T(cancelled())) : start(terms, done);
  };
  if (!until.stop.stop_possible()) return threads_->call<T>(run);
  terms.tag = threads_->next_tag();
  const std::stop_callback cancel(until.stop, [this, tag = *terms.tag] {
    threads_->post_if_memory([threads = threads_.get(), session = session_, tag] {
      threads->core().cancel(session, tag);
    });
  });
  return threads_->call<T>(run);
}

Result<OpenReply> TieredCache::open(const OpenRequest& request, const Until& until) {
  return call<Result<OpenReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().open(session_, request, terms, done);
  });
}

Result<LookupReply> TieredCache::lookup(const QueryRequest& request, const Until& until) {
  return call<Result<LookupReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().lookup(session_, request, terms, done);
  });
}

Result<ReserveReply> TieredCache::reserve(const ReserveRequest& request, const Until& until) {
  return call<Result<ReserveReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().reserve(session_, request, terms, done);
  });
}

Status TieredCache::put(PutRequest request, const Until& until) {
  return call<Status>(until, [&](CallTerms terms, auto done) {
    threads_->core().put(session_, std::move(request), nullptr, terms, done);
  });
}

Result<CommitReply> TieredCache::commit(uint64_t reservation, Durability wait_for,
                                        const Until& until) {
  return call<Result<CommitReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().commit(session_, reservation, wait_for, terms, done);
  });
}

Status TieredCache::abort(uint64_t reservation, const Until& until) {
  return call<Status>(until, [&](CallTerms terms, auto done) {
    threads_->core().abort(session_, reservation, terms, done);
  });
}

Result<FetchReply> TieredCache::fetch(const FetchRequest& request, const Until& until) {
  auto reply = call<Result<FetchReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().fetch(session_, request, terms, done);
  });
  if (!reply.ok() || request.into.empty()) return reply;
  return copied_into(std::move(*reply), request.into);
}

Result<LookupReply> TieredCache::prefetch(const PrefetchRequest& request, const Until& until) {
  return call<Result<LookupReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().prefetch(session_, request, terms, done);
  });
}

Result<DemoteReply> TieredCache::demote(const DemoteRequest& request, const Until& until) {
  return call<Result<DemoteReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().demote(session_, request, terms, done);
  });
}

Result<RetainReply> TieredCache::retain(const RetainRequest& request, const Until& until) {
  return call<Result<RetainReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().retain(session_, request, terms, done);
  });
}

Result<ExpireReply> TieredCache::expire(const ExpireRequest& request, const Until& until) {
  return call<Result<ExpireReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().expire(session_, request, terms, done);
  });
}

Result<HoldReply> TieredCache::hold(const HoldRequest& request, const Until& until) {
  return call<Result<HoldReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().hold(session_, request, terms, done);
  });
}

Result<Milliseconds> TieredCache::renew(uint64_t hold, Milliseconds time, const Until& until) {
  return call<Result<Milliseconds>>(until, [&](CallTerms terms, auto done) {
    threads_->core().renew(session_, hold, time, terms, done);
  });
}

Status TieredCache::release(uint64_t hold, const Until& until) {
  return call<Status>(until, [&](CallTerms terms, auto done) {
    threads_->core().release(session_, hold, terms, done);
  });
}

Result<uint64_t> TieredCache::erase(uint32_t model, const Query& query, const Until& until) {
  return call<Result<uint64_t>>(until, [&](CallTerms terms, auto done) {
    threads_->core().erase(session_, model, query, terms, done);
  });
}
Result<uint64_t> TieredCache::erase_entry(const QueryRequest& request, const Until& until) {
  return call<Result<uint64_t>>(until, [&](CallTerms terms, auto done) {
    threads_->core().erase_entry(session_, request, terms, done);
  });
}

Result<WhyReply> TieredCache::why(const WhyRequest& request, const Until& until) {
  return call<Result<WhyReply>>(until, [&](CallTerms terms, auto done) {
    threads_->core().why(session_, request, terms, done);
  });
}

Result<StatsReply> TieredCache::stats(const Until& until) {
  return call<Result<StatsReply>>(
      until, [&](CallTerms terms, auto done) { threads_->core().stats(session_, terms, done); });
}

void TieredCache::check_invariants() {
  threads_->call_surely([this] { threads_->core().check_invariants(); });
}

Status TieredCache::drain(Deadline deadline) { return threads_->drain(deadline); }

}  // namespace kv
