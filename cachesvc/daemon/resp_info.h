// The answer of INFO: what is known of the port's namespace and of the daemon, in Redis' names.
// Pure functions.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/core/cache_core.h"

namespace kv {

/// The version of Redis whose answers these are.
inline constexpr const char* kRespVersion = "7.0.15";
/// The stat that DBSIZE tells.
inline constexpr const char* kKeysStat = "namespace_entries";

/// Counts of the port since the start.
struct RespCounts {
  uint64_t connections = 0, commands = 0, hits = 0, misses = 0, dropped = 0;
};

uint64_t stat(const StatsReply& stats, const std::string& name);  ///< 0 if there is none

/// `words`: the command; sections that it names, or all.
std::string resp_info(const std::vector<std::string>& words, const StatsReply& stats,
                      const RamPool& pool, const RespCounts& counts, size_t connections);

}  // namespace kv
