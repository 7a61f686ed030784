// Checks that need more than one setting. Called by load_config at its end.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cachesvc/daemon/config.h"

namespace kv {

/// A key's value as the printed configuration has it.
using ValueOf = std::function<std::string(const Config&, const std::string& key)>;

/// Settings that are right alone and can't hold together; what nobody set gives way. Returns:
/// invalid_argument, naming both with their places.
Status check_together(const Config& config, const ValueOf& value_of);

/// Names of the process's environment.
std::vector<std::string> process_env_names();
/// A variable that begins like ours and isn't among `names` would be a setting that nobody obeys.
/// Returns: invalid_argument with the nearest name.
Status check_names(const std::vector<std::string>& given, const std::vector<std::string>& names);

}  // namespace kv
