// SessionHost: what all sessions of a server share. The server owns it; it outlives them. Loop
// thread only.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "cachesvc/daemon/coding_log.h"
#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/gate.h"
#include "cachesvc/daemon/mapping_peers.h"
#include "cachesvc/daemon/server_connection.h"
#include "cachesvc/daemon/turns.h"
#include "proto/message.h"

namespace kv {

struct SessionHost {
  CacheCore& core;
  const ServerOptions& options;
  /// Called once, when the session closes; `why` is for the log.
  std::function<void(ServerConnection&, std::string_view why)> closed;
  CodingLog& codings;
  const Gate& gate;
  EventLog& events;
  std::shared_ptr<Turns> turns;
  std::shared_ptr<MappingPeers> peers;
  size_t memory_peers = 0;  ///< sessions that may hand over memory, at most kMaxMemoryPeers
  BootToken boot{};         ///< this start's
};

}  // namespace kv
