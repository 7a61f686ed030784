// Reloader: SIGHUP. Reads the configuration anew, from where the start read it; what can change
// while connections are served does, and the rest is named in the log. A configuration with a
// mistake changes nothing. Loop thread only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/drainer.h"
#include "cachesvc/daemon/server.h"
#include "cachesvc/daemon/supervisor.h"

namespace kv {

/// Reads the configuration as the start did. Returns: as load_config.
using ReadConfig = std::function<Result<Config>()>;

class Reloader {
 public:
  /// `now`: the configuration in force. Everything outlives the reloader.
  Reloader(const Config& now, ReadConfig read, CacheCore& core, Server& server,
           const Supervisor& supervisor)
      : now_(now), read_(std::move(read)), core_(core), server_(server), supervisor_(supervisor) {}

  /// Returns: the drain's limit from now on.
  Milliseconds reload();

 private:
  void take_over(const Config& read);

  Config now_;  // with what was changed since the start
  const ReadConfig read_;
  CacheCore& core_;
  Server& server_;
  const Supervisor& supervisor_;
};

/// Names of settings that differ and take effect at a start only, `namespace` for the tables' names
/// and quotas.
std::vector<std::string> need_restart(const Config& now, const Config& read);

}  // namespace kv
