// Names of settings as people give them: what a wrong one was meant to be, and what to write
// instead of one that cachesvc had once. Pure functions but process_env_names. Any thread.
#pragma once

#include <string>
#include <vector>

#include "proto/status.h"

namespace kv {

/// CACHESVC_TIER_RAM_BUDGET for tier.ram.budget.
std::string env_name(const std::string& key);

/// The error of a key that there is not: `where` with its name, and what to write instead if it is
/// a setting that went or near to one that is there. invalid_argument.
Status unknown_key(const std::string& where, const std::string& key);

/// Names of the process's environment.
std::vector<std::string> process_env_names();
/// A variable that begins like ours and is no setting's would be a setting that nobody obeys.
/// Returns: invalid_argument, as unknown_key.
Status check_env_names(const std::vector<std::string>& given);

}  // namespace kv
