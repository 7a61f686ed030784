// Datagrams to the service manager, and its descriptors.
#include "cachesvc/daemon/supervisor.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace kv {
namespace {

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
constexpr unsigned kMostPassed = 64;

// The variable's value, which the environment no longer has then: no child inherits it.
std::string take(const char* name) {
  const char* value = std::getenv(name);
  std::string out = value == nullptr ? "" : value;
  ::unsetenv(name);
  return out;
}

uint64_t number(std::string_view text) {
  uint64_t n = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), n);
  return ec == std::errc() && end == text.data() + text.size() ? n : 0;
}

bool names_us(const std::string& pid) { return number(pid) == static_cast<uint64_t>(::getpid()); }

int option_of(int fd, int name) {
  int value = -1;
  socklen_t size = sizeof(value);
  return ::getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
}

bool listens_on_unix(int fd) {
  return option_of(fd, SO_DOMAIN) == AF_UNIX && option_of(fd, SO_TYPE) == SOCK_STREAM &&
         option_of(fd, SO_ACCEPTCONN) == 1;
}

}  // namespace

Supervisor Supervisor::from_environment() {
  Supervisor out;
  out.socket_ = take("NOTIFY_SOCKET");
  const std::string interval = take("WATCHDOG_USEC"), watched = take("WATCHDOG_PID");
  if (watched.empty() || names_us(watched)) {
    out.sign_interval_ = std::chrono::microseconds(number(interval) / 2);
  }
  const std::string passed = take("LISTEN_FDS"), owner = take("LISTEN_PID");
  ::unsetenv("LISTEN_FDNAMES");
  if (names_us(owner)) {
    out.passed_ = static_cast<unsigned>(std::min<uint64_t>(number(passed), kMostPassed));
  }
  for (unsigned i = 0; i < out.passed_; ++i) {
    (void)::fcntl(kFirstPassed + static_cast<int>(i), F_SETFD, FD_CLOEXEC);
  }
  return out;
}

Result<int> Supervisor::listening_socket() const {
  if (passed_ == 0) return -1;
  if (passed_ > 1) {
    return invalid_argument("LISTEN_FDS: " + std::to_string(passed_) +
                            " sockets, expected the one of server.socket");
  }
  if (!listens_on_unix(kFirstPassed)) {
    return invalid_argument("LISTEN_FDS: expected a Unix stream socket that listens");
  }
  return kFirstPassed;
}

// The manager of versions from 253 on wants the time at which the reload began.
void Supervisor::reloading() const {
  timespec now{};
  (void)::clock_gettime(CLOCK_MONOTONIC, &now);
  const int64_t us = int64_t{now.tv_sec} * 1'000'000 + now.tv_nsec / 1'000;
  tell("RELOADING=1\nMONOTONIC_USEC=" + std::to_string(us));
}

// A manager that doesn't read loses what it is told: nothing waits for it.
void Supervisor::tell(const std::string& message) const {
  sockaddr_un address{};
  if (socket_.empty() || socket_.size() >= sizeof(address.sun_path)) return;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return;
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  (void)!::sendto(fd, message.data(), message.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                  reinterpret_cast<const sockaddr*>(&address), size);
  ::close(fd);
}

}  // namespace kv
