// Tables [[namespace]] of the configuration file: the owners of namespaces. Any thread.
#pragma once

#include <string>
#include <vector>

#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/config_mistakes.h"

namespace kv {

/// Reads the tables, and the token files that they name. Mistakes name file and line: an unknown
/// key, a value that can't be honoured, two tables of one name.
std::vector<NamespaceRule> read_namespaces(const std::string& file, Mistakes& mistakes);

/// The tables in the form that is read back; tokens as their files' names.
std::string print_namespaces(const std::vector<NamespaceRule>& rules);

}  // namespace kv
