// Drainer: handles the service's signals. TERM, INT and QUIT drain by a limit, then the loop ends;
// another one at least kRepeat later ends the process as a crash would (timeout(1) sends two within
// a millisecond). HUP reloads, unless it drains; USR1 and USR2 are ignored. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <chrono>
#include <functional>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/server.h"
#include "cachesvc/daemon/supervisor.h"

namespace kv {

class Drainer {
 public:
  static constexpr std::chrono::seconds kRepeat{1};

  /// Ignores signals that would end the process by default. Call it before anything else.
  static void ignore_others();
  /// `limit`: of a drain. `reload` returns the new one. Everything outlives the drainer.
  Drainer(boost::asio::io_context& io, CacheCore& core, Server& server,
          const Supervisor& supervisor, Milliseconds limit, std::function<Milliseconds()> reload);
  Drainer(const Drainer&) = delete;  // handlers point here
  Drainer& operator=(const Drainer&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  void wait();
  void on_signal(int signal);
  void drain();
  void drained(const Status& status, Deadline deadline);

  boost::asio::io_context& io_;
  CacheCore& core_;
  Server& server_;
  const Supervisor& supervisor_;
  Milliseconds limit_;
  const std::function<Milliseconds()> reload_;
  boost::asio::signal_set signals_;
  bool draining_ = false;
  Clock::time_point asked_{};
};

}  // namespace kv
