// Supervisor: the service manager that started the program, in systemd's way (sd_notify(3),
// sd_listen_fds(3)). It is told by datagrams how the service is, and may have opened the socket.
// Without a manager nothing is told. Loop thread only, after the start.
#pragma once

#include <chrono>
#include <string>

#include "proto/status.h"

namespace kv {

class Supervisor {
 public:
  /// Takes NOTIFY_SOCKET, WATCHDOG_USEC, WATCHDOG_PID, LISTEN_FDS and LISTEN_PID out of the
  /// environment. Call it before the first thread.
  static Supervisor from_environment();

  /// A listening Unix stream socket that the manager opened; -1: it opened none. Returns:
  /// invalid_argument if it passed more, or something else.
  Result<int> listening_socket() const;
  /// Time between two signs of life that the manager accepts, halved; zero: it wants none.
  std::chrono::microseconds sign_interval() const { return sign_interval_; }

  /// True if somebody is told.
  bool listens() const { return !socket_.empty(); }
  void ready() const { tell("READY=1"); }
  void alive() const { tell("WATCHDOG=1"); }
  void reloading() const;
  void stopping() const { tell("STOPPING=1"); }
  /// A line for people: `systemctl status` shows it.
  void status(const std::string& line) const { tell("STATUS=" + line); }

 private:
  void tell(const std::string& message) const;

  std::string socket_;  ///< path, or @name; empty: nobody listens
  std::chrono::microseconds sign_interval_{0};
  unsigned passed_ = 0;  ///< descriptors from kFirstPassed on
};

}  // namespace kv
