// Start, loop, end.
#include "cachesvc/daemon/service.h"

#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <filesystem>
#include <future>
#include <new>
#include <string>
#include <thread>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/descriptors.h"
#include "cachesvc/daemon/drainer.h"
#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/exit_code.h"
#include "cachesvc/daemon/log.h"
#include "cachesvc/daemon/remote.h"
#include "cachesvc/daemon/server.h"
#include "cachesvc/daemon/signs.h"
#include "cachesvc/daemon/start_log.h"
#include "cachesvc/loop/timer.h"
#include "cachesvc/loop/workers.h"

namespace kv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMallocShare = 64;  // malloc's part: budget / 64
constexpr Milliseconds kProfileCheck = std::chrono::minutes(10);

int complain(const Status& status, int code) {
  say_last("cachesvc: " + status.message());
  return code;
}
int complain(const Status& status) {
  switch (status.code()) {
    case StatusCode::busy:
      return complain(status, kTemporary);
    case StatusCode::invalid_argument:
      return complain(status, kConfig);
    default:
      return complain(status, kRuntime);
  }
}

Status write_ready(int fd) {
  static constexpr char kReady[] = "ready\n";
  ssize_t n = ::write(fd, kReady, sizeof(kReady) - 1);
  ::close(fd);
  if (n == sizeof(kReady) - 1) return {};
  return {StatusCode::io_error, "--ready-fd: cannot write to descriptor " + std::to_string(fd)};
}

// Makes missing parents of the store, 0700: the tier makes the last one.
Status make_parents(const std::string& directory) {
  std::error_code ec;
  auto parent = std::filesystem::absolute(directory).parent_path();
  std::filesystem::create_directories(parent, ec);
  if (ec) return invalid_argument("tier.ssd.dir: " + parent.string() + ": " + ec.message());
  return {};
}

// Tells counts that the log held back, also if nothing more happens.
class EventFlush {
 public:
  EventFlush(boost::asio::io_context& io, EventLog& events)
      : timer_(io.get_executor(), [this, &events] {
          events.flush(Clock::now());
          timer_.arm_in(EventLog::kQuiet);
        }) {
    timer_.arm_in(EventLog::kQuiet);
  }

 private:
  Timer timer_;
};

// A device that hangs holds its thread for ever: out, as a crash would, after `limit`.
void join_disk(Workers& disk, Milliseconds limit) {
  std::promise<void> joined;
  std::thread watch([ended = joined.get_future(), limit] {
    if (ended.wait_for(limit) == std::future_status::ready) return;
    log_line(spdlog::level::err, {"ssd_hangs", {}}, "the SSD hangs: exit without it");
    flush_log();
    ::_exit(kRuntime);
  });
  disk.join();
  joined.set_value();
  watch.join();
}

// A small allocation failed: the process ends as a crash would. The store is proven against that at
// any moment, and a supervisor starts the service again.
[[noreturn]] void end_without_memory() {
  log_line(spdlog::level::critical, {"out_of_memory", {}}, "out of memory: the daemon ends");
  flush_log();
  ::_exit(kTemporary);
}

// Runs the loop until it is stopped.
void run_or_end(boost::asio::io_context& io) {
  try {
    run_loop(io);
  } catch (const std::bad_alloc&) {
    end_without_memory();
  }
}

// Bounds what malloc keeps beside what is charged: few arenas instead of eight a processor, and
// what is larger than a long prompt's tokens goes back to the system when it is freed, however
// large the last such was: those half megabytes are taken for each call, and new pages cost more
// than the rest of reading them. Small blocks join their free neighbours when they are freed: kept
// in fast bins, tens of thousands of them are joined at once at some later, larger request of the
// loop's, which takes it 1 to 2 ms then.
void bound_malloc() {
  constexpr int kArenas = 2, kLargeBytes = 1 << 20, kKeptBytes = 2 << 20, kGrownBytes = 128 << 10;
  (void)::mallopt(M_ARENA_MAX, kArenas);
  (void)::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  (void)::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  (void)::mallopt(M_TOP_PAD, kGrownBytes);
  (void)::mallopt(M_MXFAST, 0);
}

// Forbids core dumps and other processes to read memory: it holds the key and what that seals.
void close_memory() {
  rlimit none{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &none);
  (void)::prctl(PR_SET_DUMPABLE, 0);  // the limit does not hold where cores go to a program
}

// Sets the process up for the service, before its first thread.
int prepare_process(const Config& config, int ready_fd) {
  bound_malloc();
  if (ready_fd >= 0 && ::fcntl(ready_fd, F_SETFD, FD_CLOEXEC) != 0) {
    return complain(
        invalid_argument("--ready-fd: descriptor " + std::to_string(ready_fd) + " is not open"),
        kUsage);
  }
  if (Status s = raise_descriptor_limit(config); !s.ok()) return complain(s, kConfig);
  ::umask(0077);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  Drainer::ignore_others();
  if (config.cache.ssd_key || config.remote.key) close_memory();
  return kOk;
}

// A request in the words of `cachectl why`.
void log_request(const RequestRecord& r) {
  std::string text;
  for (const std::string& line : words(r, r.at_ms)) text += (text.empty() ? "" : "; ") + line;
  log_line(spdlog::level::debug,
           {"request",
            {{"number", r.number}, {"asked", r.asked}, {"served", r.served()}, {"us", r.total_us}}},
           "request " + std::to_string(r.number) + ", " + to_string(r.kind) + ": " + text);
}

Result<CacheOptions> core_options(const Config& config, EventLog& events) {
  CacheOptions options = config.cache;
  options.max_put_bytes = config.server.max_put_bytes;
  options.segments = true;
  KV_ASSIGN_OR_RETURN(const uint64_t budget, ram_budget(options));
  const uint64_t remote = remote_bytes(budget);
  KV_ASSIGN_OR_RETURN(options.remote.tier, connect_remote(config.remote, remote));
  options.remote.profile_check = std::min(kProfileCheck, config.remote.expiry / 4);
  // Malloc keeps the more freed pieces of the index the larger it is: they are in the budget too.
  const uint64_t others = budget / kMallocShare + (options.remote.tier ? remote : 0);
  options.ram_budget_bytes = std::max(kMinRamBudgetBytes, budget - others);
  options.on_recovered = log_recovery;
  if (config.log.level == "debug" || config.log.level == "trace") {
    options.on_request = log_request;
  }
  options.on_event = [&events](const CacheEvent& e) {
    if (e.kind == EventKind::no_memory) end_without_memory();
    events.on(e, Clock::now());
  };
  return options;
}

// Runs from the first connection that may come to the last answer that is sent.
int run_server(boost::asio::io_context& io, CacheCore& core, EventLog& events, const Config& config,
               int ready_fd, const Supervisor& supervisor, ReadConfig again) {
  Server server(io, core, events, config.server);
  Reloader reloader(config, std::move(again), core, server, supervisor);
  Drainer drainer(io, core, server, supervisor, config.server.drain_timeout,
                  [&reloader] { return reloader.reload(); });
  EventFlush flush(io, events);
  if (Status s = server.listen(); !s.ok()) return complain(s);
  log_start(config, core);
  log_line(spdlog::level::info, {"ready", {}}, "ready");
  supervisor.ready();
  Signs signs(io, core, supervisor);
  if (ready_fd >= 0) {
    if (Status s = write_ready(ready_fd); !s.ok()) return complain(s, kRuntime);
  }
  run_or_end(io);
  return kOk;
}

}  // namespace

int serve(Config config, int ready_fd, ReadConfig again) {
  if (int code = prepare_process(config, ready_fd); code != kOk) return code;
  const Supervisor supervisor = Supervisor::from_environment();
  auto passed = supervisor.listening_socket();
  if (!passed.ok()) return complain(passed.status());
  config.server.listening_fd = *passed;
  Log log(config.log);
  if (!config.cache.ssd_dir.empty()) {
    if (Status s = make_parents(config.cache.ssd_dir); !s.ok()) return complain(s, kConfig);
  }
  boost::asio::io_context io(1);
  Workers workers(config.cache.workers), disk(config.cache.disk_threads);
  EventLog events;
  auto options = core_options(config, events);
  if (!options.ok()) return complain(options.status());
  auto core =
      CacheCore::create(*options, io.get_executor(), workers.get_executor(), disk.get_executor());
  if (!core.ok()) return complain(core.status());
  const int code = run_server(io, **core, events, config, ready_fd, supervisor, std::move(again));
  if (code != kOk) return code;
  (*core).reset();
  if (options->remote.tier) options->remote.tier->close();
  events.flush_all();
  workers.join();
  join_disk(disk, config.cache.io_timeout);
  log_line(spdlog::level::info, {"stopped", {}}, "stopped");
  return kOk;
}

}  // namespace kv
