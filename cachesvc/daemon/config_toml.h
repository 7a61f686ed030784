// The TOML file of settings: read into texts with their lines, and printed so that it can be read
// back. Any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/daemon/config.h"
#include "cachesvc/daemon/config_mistakes.h"

namespace kv {

/// Reads the texts; values themselves are not looked at. Mistakes name file and line: an unknown
/// key, a value of no kind that a setting has. Returns: invalid_argument naming both: it is no
/// TOML.
Result<std::vector<Setting>> read_toml(const std::string& file, Mistakes& mistakes);

/// The text as a basic string of TOML, quotes included.
std::string toml_text(std::string_view text);

/// A TOML file of every setting: its help above it, its value in force, where that came from.
std::string print_config(const Config& config);

}  // namespace kv
