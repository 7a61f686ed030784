// The shared tier as it is configured.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cachesvc/daemon/config.h"
#include "cachesvc/remote/redis_tier.h"

namespace kv {

/// RAM for values under way, taken off the budget.
uint64_t remote_bytes(uint64_t budget_bytes);

/// Addresses of "host:port,host:port". Returns: invalid_argument.
Result<std::vector<NodeAddress>> remote_nodes(const std::string& list);

/// Asks nobody yet. Null: none is configured. Returns: invalid_argument (a TLS file).
Result<std::shared_ptr<SharedTier>> connect_remote(const RemoteSettings& settings, uint64_t bytes);

}  // namespace kv
