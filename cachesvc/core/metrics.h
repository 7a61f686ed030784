// Metrics: everything that the service counts, for monitoring: its stats, its measures, and what
// each namespace has. Plain values.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/core/measures.h"
#include "proto/client.h"

namespace kv {

/// Gauges of a namespace. Those of a share are its own only if it has a quota.
struct NamespaceUse {
  uint64_t sessions = 0, models = 0, entries = 0, reservations = 0, holds = 0, segment_bytes = 0;
  bool has_quota = false;
  uint64_t calls = 0;
  uint64_t ram_bytes = 0, ram_quota_bytes = 0, ssd_bytes = 0, ssd_quota_bytes = 0;
};

/// Objects of a namespace that were asked to leave RAM.
struct DemoteAllReply {
  uint64_t left = 0;      ///< are on the SSD alone now
  uint64_t deferred = 0;  ///< are being written first, and stay meanwhile
  uint64_t stay = 0;      ///< pinned, needed by others, or never on the SSD
};

struct Metrics {
  /// Namespaces that are told one by one; all others are added up under an empty name.
  static constexpr size_t kMaxNamespaceUses = 256;
  StatsReply stats;
  Measures measures;
  std::map<std::string, NamespaceUse> namespaces;
  std::string not_ready;  ///< why; empty: it is ready
  uint32_t seconds = 0;   ///< since the core began
};

}  // namespace kv
