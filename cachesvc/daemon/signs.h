// Signs: signs of life for the service manager, and a line about the cache for `systemctl status`.
// The signs come from the loop: they end when it stands still, and the manager starts the service
// anew. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/supervisor.h"
#include "cachesvc/loop/timer.h"

namespace kv {

class Signs {
 public:
  /// Begins at once. `core` and `supervisor` outlive the signs.
  Signs(boost::asio::io_context& io, CacheCore& core, const Supervisor& supervisor);
  Signs(const Signs&) = delete;  // timers point here
  Signs& operator=(const Signs&) = delete;

 private:
  void alive();
  void status();

  CacheCore& core_;
  const Supervisor& supervisor_;
  Timer alive_timer_, status_timer_;
};

/// "RAM 3.1 of 4.0 GiB, SSD 20.0 of 32.0 GiB, 61 % of tokens were hits".
std::string status_line(const Metrics& metrics);

}  // namespace kv
