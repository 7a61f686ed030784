// Files and connections that the service may have open at a time.
//
// Called once at the start, by main.
#pragma once

#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/mapping_peers.h"
#include "cachesvc/daemon/peer_memory.h"
#include "memory/segment_store.h"

namespace kv {

/// Files that stay free for the SSD tier, SQLite, the log, two of each segment, one of each process
/// that maps segments, and clients' memories, when every connection is taken.
inline constexpr uint64_t kReservedDescriptors =
    128 + 2 * kMaxSegments + kMaxMappingPeers +
    kMaxMemoryPeers * (kMaxMemories + kMaxWaitingDescriptors);

/// Raises this process's limit of open files to the connections of the configuration and
/// kReservedDescriptors. Returns: invalid_argument if the system's limit is lower.
Status raise_descriptor_limit(const Config& config);

}  // namespace kv
