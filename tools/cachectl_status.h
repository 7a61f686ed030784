// cachectl status, doctor and counters: what a daemon counts, or a directory holds, for people. One
// thread.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "proto/client.h"
#include "tools/cachectl_findings.h"
#include "tools/cachectl_place.h"
#include "tools/cachectl_store.h"

namespace kv::cachectl {

void add_status(CLI::App& app, std::function<Exit()>& chosen);
void add_doctor(CLI::App& app, std::function<Exit()>& chosen);
void add_top(CLI::App& app, std::function<Exit()>& chosen);
void add_try(CLI::App& app, std::function<Exit()>& chosen);  ///< ping, put, get
void add_tree(CLI::App& app, std::function<Exit()>& chosen);
void add_export(CLI::App& app, std::function<Exit()>& chosen);  ///< and import
void add_counters(CLI::App& app, std::function<Exit()>& chosen);

/// Returns: what the daemon or connecting returns.
Result<Seen> see(const Place& place);
Result<Seen> see(Client& client);

/// The screen of status, a line each. Pure.
std::vector<std::string> status_lines(const Seen& seen);

/// Faults of a directory's files, in sentences.
std::vector<std::string> findings(const StoreView& store);
/// status on a directory.
Exit run_store_status(const Request& request);
Exit run_store_doctor(const Request& request);

}  // namespace kv::cachectl
