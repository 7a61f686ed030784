// cachesvc: the program. Command line, start-up, exit codes:
// 0 ok, 1 runtime error, 2 usage, 75 store or socket held by another process, 78 configuration.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <filesystem>
#include <future>
#include <iostream>
#include <thread>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/descriptors.h"
#include "cachesvc/daemon/drainer.h"
#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/log.h"
#include "cachesvc/daemon/server.h"
#include "cachesvc/daemon/start_log.h"
#include "cachesvc/loop/task.h"
#include "cachesvc/loop/workers.h"

namespace kv {
namespace {

using Clock = std::chrono::steady_clock;

constexpr char kVersion[] = "0.1.0";
constexpr uint64_t kMallocShare = 64;  // one in so many bytes of the RAM budget

enum ExitCode { kOk = 0, kRuntime = 1, kUsage = 2, kTemporary = 75, kConfig = 78 };

int exit_code(const Status& status) {
  switch (status.code()) {
    case StatusCode::busy:
      return kTemporary;
    case StatusCode::invalid_argument:
      return kConfig;
    default:
      return kRuntime;
  }
}

int complain(const Status& status, int code) {
  say_last("cachesvc: " + status.message());
  return code;
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

// Tells what was held back, also if nothing more happens.
class EventFlush {
 public:
  EventFlush(boost::asio::io_context& io, EventLog& events) : events_(events), timer_(io) {
    wait();
  }
  EventFlush(const EventFlush&) = delete;  // its handler points here
  EventFlush& operator=(const EventFlush&) = delete;

 private:
  void wait() {
    timer_.expires_after(EventLog::kQuiet);
    arm_surely(timer_.get_executor(), memory_, [this] {
      timer_.async_wait([this](const boost::system::error_code& ec) {
        if (ec) return;
        (void)if_memory([this] { events_.flush(Clock::now()); });  // or the next time
        wait();
      });
    });
  }

  EventLog& events_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<PostMemory> memory_ = std::make_shared<PostMemory>();
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

// What malloc keeps beside what is charged: few arenas instead of eight a processor, and what is
// large goes back to the system when it is freed, however large the last such was.
void bound_malloc() {
  constexpr int kArenas = 2, kLargeBytes = 128 << 10, kKeptBytes = 512 << 10;
  (void)::mallopt(M_ARENA_MAX, kArenas);
  (void)::mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  (void)::mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  (void)::mallopt(M_TOP_PAD, kLargeBytes);
}

int serve(const Config& config, int ready_fd) {
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
  Log log(config.log);
  if (config.cache.ssd_key != nullptr) {
    rlimit none{0, 0};
    (void)::setrlimit(RLIMIT_CORE, &none);  // a core would hold the key and what it seals
    (void)::prctl(PR_SET_DUMPABLE, 0);      // the limit does not hold where cores go to a program
  }
  if (!config.cache.ssd_dir.empty()) {
    Status status = make_parents(config.cache.ssd_dir);
    if (!status.ok()) return complain(status, kConfig);
  }

  boost::asio::io_context io(1);
  Workers workers(config.cache.workers), disk(config.cache.disk_threads);
  CacheOptions options = config.cache;
  options.max_put_bytes = config.server.max_put_bytes;
  // Malloc keeps the more freed pieces of the index the larger it is: they are in the budget too.
  options.ram_budget_bytes -= options.ram_budget_bytes / kMallocShare;
  options.on_recovered = log_recovery;
  EventLog events;
  options.on_event = [&events](const CacheEvent& e) { events.on(e, Clock::now()); };
  auto core =
      CacheCore::create(options, io.get_executor(), workers.get_executor(), disk.get_executor());
  if (!core.ok()) return complain(core.status(), exit_code(core.status()));
  int code = kOk;
  {
    Server server(io, **core, config.server);
    Drainer drainer(io, **core, server, config.server.drain_timeout);
    EventFlush flush(io, events);
    Status status = server.listen();
    if (!status.ok()) return complain(status, exit_code(status));
    log_start(kVersion, config, **core);
    log_line(spdlog::level::info, {"ready", {}}, "ready");
    if (ready_fd >= 0) {
      status = write_ready(ready_fd);
      if (!status.ok()) return complain(status, kRuntime);
    }
    run_loop(io);
  }
  (*core).reset();
  events.flush_all();
  workers.join();
  join_disk(disk, config.cache.io_timeout);
  log_line(spdlog::level::info, {"stopped", {}}, "stopped");
  return code;
}

struct CommandLine {
  ConfigSources sources;
  std::string file, check_file;
  std::map<std::string, std::string> values;  // key -> text, of flags
  std::vector<std::string> sets;              // KEY=VALUE
  int ready_fd = -1;
};

void add_options(CLI::App* command, CommandLine& line) {
  command->add_option("--config", line.file,
                      "TOML file (default: $XDG_CONFIG_HOME/cachesvc/"
                      "cachesvc.toml, if it exists)");
  for (const auto& key : config_keys()) {
    if (!key.flag.empty()) {
      command->add_option(key.flag, line.values[key.key], key.help + " [" + key.key + "]");
    }
  }
  command->add_option("--set", line.sets, "KEY=VALUE for any key of print-config");
}

// Flags as settings; --set wins over a short flag.
Status collect(const CLI::App* command, CommandLine& line) {
  if (command->count("--config") > 0) line.sources.file = line.file;
  for (const auto& key : config_keys()) {
    if (!key.flag.empty() && command->count(key.flag) > 0) {
      line.sources.flags.push_back({key.key, line.values[key.key], key.flag});
    }
  }
  for (const auto& set : line.sets) {
    size_t equals = set.find('=');
    if (equals == set.npos) return invalid_argument("--set " + set + ": expected KEY=VALUE");
    line.sources.flags.push_back({set.substr(0, equals), set.substr(equals + 1), "--set"});
  }
  return {};
}

// Closed at the start, 0 to 2 would become files or connections of ours, and messages go there.
void hold_standard_descriptors() {
  int fd = 0;
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  ::close(fd);
}

int run(int argc, char** argv) {
  hold_standard_descriptors();
  CLI::App app{"cachesvc: a cache of prompts' KV for inference servers"};
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("cachesvc ") + kVersion + ", protocol " +
                                        std::to_string(kProtocolVersion) + ", g++ " __VERSION__);
  CommandLine line;
  CLI::App* serve_command = app.add_subcommand("serve", "run the service in the foreground");
  add_options(serve_command, line);
  serve_command->add_option("--ready-fd", line.ready_fd,
                            "write a line to this inherited descriptor once connections are taken");
  CLI::App* check =
      app.add_subcommand("check-config", "read a configuration and say what is wrong");
  check->add_option("FILE", line.check_file, "default: what serve would read");
  CLI::App* print =
      app.add_subcommand("print-config", "every key, its value and where it came from");
  add_options(print, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? kOk : kUsage;
  }

  const CLI::App* command = serve_command->parsed() ? serve_command : print;
  if (check->parsed()) {
    if (!line.check_file.empty()) line.sources.file = line.check_file;
  } else {
    Status status = collect(command, line);
    if (!status.ok()) return complain(status, kUsage);
  }
  auto config = load_config(line.sources);
  if (!config.ok()) return complain(config.status(), kConfig);
  if (check->parsed()) {
    std::cout << "ok: " << (config->file.empty() ? "defaults (no file)" : config->file) << "\n";
    return kOk;
  }
  if (print->parsed()) {
    std::cout << print_config(*config);
    return kOk;
  }
  return serve(*config, line.ready_fd);
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) { return kv::run(argc, argv); }
