// The service as a process: its parts, and the order in which they begin and end. Main thread only,
// once.
#pragma once

#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/reloader.h"

namespace kv {

/// Runs until a signal ends it; `ready_fd` >= 0 gets a line once connections are taken. `again`
/// reads the configuration at a SIGHUP. What goes wrong is said on stderr. Returns: an ExitCode.
/// Out of memory it does not return.
int serve(Config config, int ready_fd, ReadConfig again);

}  // namespace kv
