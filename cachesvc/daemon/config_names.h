// Names of settings as people give them: suggestions for a misspelt one, and replacements of former
// ones. Pure functions but process_env_names. Any thread.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/daemon/config_mistakes.h"

namespace kv {

/// CACHESVC_TIER_RAM_BUDGET for tier.ram.budget.
std::string env_name(const std::string& key);

/// The error of an unknown key: `where` with its name, and what to write instead if it is a former
/// setting or near to a present one. invalid_argument.
Status unknown_key(const std::string& where, const std::string& key);

/// Names of the process's environment.
std::vector<std::string> process_env_names();
/// Checks variables with our prefix: one that is no setting's would have no effect.
void check_env_names(const std::vector<std::string>& given, Mistakes& mistakes);

}  // namespace kv
