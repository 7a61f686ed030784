// Place: where cachectl looks: a directory or a daemon's socket, given or found as `cachesvc serve`
// finds its own. One thread.
#pragma once

#include "proto/socket_client.h"
#include "tools/cachectl.h"

namespace kv::cachectl {

/// The socket and the directory that `cachesvc serve` would use as things stand here: its
/// configuration file, CACHESVC_* and defaults. Returns: what load_config returns.
struct Place {
  std::string socket, directory;
};
Result<Place> default_place();

/// A client of the daemon at `socket` (empty: the default place's), as namespace `ns`. Returns:
/// what connecting returns, naming the socket and what to do.
Result<std::unique_ptr<SocketClient>> daemon_at(const std::string& socket, const std::string& ns);
/// Patience with a daemon.
inline constexpr std::chrono::seconds kPatience{10};

}  // namespace kv::cachectl
