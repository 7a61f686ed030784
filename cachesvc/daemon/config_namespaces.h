// Tables [[namespace]] of the configuration file: the owners of namespaces. Any thread.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/daemon/config.h"

namespace kv {

/// Reads the tables, and the token files that they name. Returns: invalid_argument or io_error,
/// naming file and line: an unknown key, a value that can't be honoured, two tables of one name.
Result<std::vector<NamespaceRule>> read_namespaces(const std::string& file);

/// The tables in the form that is read back; tokens as their files' names.
std::string print_namespaces(const std::vector<NamespaceRule>& rules);

}  // namespace kv
