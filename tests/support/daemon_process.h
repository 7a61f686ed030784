// DaemonProcess: the real `cachesvc serve` as a child, for tests that kill it.
//
// KV_CACHESVC_BIN (a compile definition) names the program; with limits that no setting changes it
// is tests/support/daemon_with_limits.cc, which is built beside it. start() returns once the daemon
// has said on its ready descriptor that it serves; no sleeping. One thread at a time.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace kv {

class DaemonProcess {
 public:
  /// `args` follow `cachesvc serve`. Null if it ended before it was ready. `limits`: such as
  /// "progress_timeout=50". `closed`: it gets no standard input, output and error.
  static std::unique_ptr<DaemonProcess> start(std::vector<std::string> args,
                                              std::vector<std::string> limits = {},
                                              bool closed = false) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) return nullptr;
    std::string program = KV_CACHESVC_BIN;
    if (!limits.empty()) program = program.substr(0, program.rfind('/')) + "/daemon_with_limits";
    args.insert(args.begin(), "serve");
    args.insert(args.begin(), limits.begin(), limits.end());
    args.insert(args.begin(), program);
    args.insert(args.end(), {"--log-level", "error", "--ready-fd", std::to_string(ready[1])});
    std::vector<char*> argv;
    for (auto& a : args) argv.push_back(a.data());
    argv.push_back(nullptr);
    pid_t pid = ::fork();
    if (pid == 0) {
      ::fcntl(ready[1], F_SETFD, 0);
      for (int fd = 0; closed && fd <= STDERR_FILENO; ++fd) ::close(fd);
      ::execv(argv[0], argv.data());
      ::_exit(127);
    }
    ::close(ready[1]);
    char byte;
    ssize_t n = pid > 0 ? ::read(ready[0], &byte, 1) : -1;
    ::close(ready[0]);
    auto daemon = std::unique_ptr<DaemonProcess>(new DaemonProcess(pid));
    if (n == 1) return daemon;
    daemon->kill();
    return nullptr;
  }
  ~DaemonProcess() { kill(); }
  DaemonProcess(const DaemonProcess&) = delete;  // owns the child
  DaemonProcess& operator=(const DaemonProcess&) = delete;

  pid_t pid() const { return pid_; }
  /// SIGKILL, then reaps it. Does nothing if it has ended already.
  void kill() { end(SIGKILL); }
  /// SIGTERM, then waits. Returns the exit code, or -1 if a signal ended it.
  int stop() { return end(SIGTERM); }
  /// SIGTERM, again and again until it has ended.
  int stop_now() {
    int status = 0;
    while (::waitpid(pid_, &status, WNOHANG) == 0) {
      ::kill(pid_, SIGTERM);
      ::usleep(100'000);
    }
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  /// Waits, for one that was sent a signal. As stop().
  int wait() { return end(0); }

 private:
  explicit DaemonProcess(pid_t pid) : pid_(pid) {}
  int end(int signal) {
    if (pid_ <= 0) return -1;
    if (signal != 0) ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t pid_;
};

}  // namespace kv
