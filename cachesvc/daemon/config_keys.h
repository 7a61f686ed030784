// Keys: the settings that there are, each with its help, its bounds and its default. Everything
// that reads, prints or explains settings goes through this table. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cachesvc/daemon/config.h"

namespace kv {

/// How a TOML file writes a value.
enum class TomlForm : uint8_t { text, number, list_of_texts, list_of_numbers };

struct Key {
  std::string name;     ///< "tier.ram.budget"
  std::string flag;     ///< "--ram"; empty: only --set
  std::string what;     ///< what it decides, as a clause without a full stop
  std::string accepts;  ///< kind, unit and bounds: "A size from 0 to 1PiB"
  std::string by_default;
  TomlForm form = TomlForm::text;
  std::function<Status(Config&, const std::string&)> set;  ///< from text, of a list with commas
  std::function<std::string(const Config&)> get;           ///< the text that `set` reads back

  /// Text that says what it decides, what it accepts, and its default.
  std::string help() const;
};

/// All, in order of the printed configuration: keys of one table stand together.
const std::vector<Key>& config_keys();
/// Null if there is none of this name.
const Key* find_key(const std::string& name);

}  // namespace kv
