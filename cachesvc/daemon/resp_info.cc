// Sections of INFO.
#include "cachesvc/daemon/resp_info.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "cachesvc/daemon/resp_receiver.h"
#include "cachesvc/daemon/version.h"

namespace kv {
namespace {

using Lines = std::vector<std::pair<const char*, std::string>>;
struct Section {
  const char* name;
  Lines lines;
};

bool is_asked(const std::vector<std::string>& words, const std::string& section) {
  if (words.size() < 2) return true;
  return std::any_of(words.begin() + 1, words.end(), [&](const std::string& word) {
    const std::string name = resp_word(word);
    return name == resp_word(section) || name == "ALL" || name == "DEFAULT" || name == "EVERYTHING";
  });
}

// A namespace with a share sees its own part of the memory.
Lines memory(const StatsReply& stats, const RamPool& pool) {
  const uint64_t share = stat(stats, "namespace_ram_quota_bytes");
  return {{"used_memory",
           std::to_string(share > 0 ? stat(stats, "namespace_ram_bytes") : pool.used_bytes())},
          {"maxmemory", std::to_string(share > 0 ? share : pool.most_bytes())},
          {"maxmemory_policy", "allkeys-lru"}};
}

}  // namespace

uint64_t stat(const StatsReply& stats, const std::string& name) {
  auto it = std::find_if(stats.values.begin(), stats.values.end(),
                         [&](const auto& value) { return value.first == name; });
  return it == stats.values.end() ? 0 : it->second;
}

std::string resp_info(const std::vector<std::string>& words, const StatsReply& stats,
                      const RamPool& pool, const RespCounts& counts, size_t connections) {
  const std::string keys = std::to_string(stat(stats, kKeysStat));
  const Section sections[] = {
      {"Server",
       {{"redis_version", kRespVersion},
        {"redis_mode", "standalone"},
        {"process_id", std::to_string(::getpid())},
        {"cachesvc_version", kProgramVersion}}},
      {"Clients", {{"connected_clients", std::to_string(connections)}}},
      {"Memory", memory(stats, pool)},
      {"Stats",
       {{"total_connections_received", std::to_string(counts.connections)},
        {"total_commands_processed", std::to_string(counts.commands)},
        {"keyspace_hits", std::to_string(counts.hits)},
        {"keyspace_misses", std::to_string(counts.misses)},
        {"cachesvc_values_dropped", std::to_string(counts.dropped)}}},
      {"Keyspace", keys == "0" ? Lines{} : Lines{{"db0", "keys=" + keys + ",expires=0,avg_ttl=0"}}},
  };
  std::string out;
  for (const Section& section : sections) {
    if (!is_asked(words, section.name)) continue;
    out += std::string(out.empty() ? "" : "\r\n") + "# " + section.name + "\r\n";
    for (const auto& [name, value] : section.lines) out += std::string(name) + ":" + value + "\r\n";
  }
  return out;
}

}  // namespace kv
