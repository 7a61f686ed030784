// cachectl status and doctor: what a daemon counts, for people. One thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "proto/client.h"
#include "tools/cachectl.h"

namespace kv::cachectl {

void add_status(CLI::App& app, std::function<Exit()>& chosen);
void add_doctor(CLI::App& app, std::function<Exit()>& chosen);

/// A daemon's counters by name, and its recent requests that were not served whole.
struct Seen {
  std::map<std::string, uint64_t> stats;
  std::vector<std::string> models;  ///< names of those that are open
  std::vector<RequestRecord> missed;
  uint64_t at_ms = 0;  ///< time of the answer, since 1970

  uint64_t operator[](const std::string& name) const;  ///< 0: it has no such value
};
/// `socket` empty: the default place's. Returns: what the daemon or connecting returns.
Result<Seen> see(const std::string& socket);

/// The doctor's sentences, the worst first. Pure.
std::vector<std::string> findings(const Seen& seen);

}  // namespace kv::cachectl
