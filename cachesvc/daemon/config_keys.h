// Keys: the table of all settings, each with its help, its bounds and its default. Settings are
// read, printed and explained by this table. Any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "cachesvc/daemon/config.h"

namespace kv {

/// Form of a value in a TOML file.
enum class TomlForm : uint8_t { text, number, list_of_texts, list_of_numbers };

struct Key {
  std::string name;     ///< "tier.ram.budget"
  std::string flag;     ///< "--ram"; empty: only --set
  std::string what;     ///< help: what it decides, as a clause without a full stop
  std::string accepts;  ///< kind, unit and bounds: "A size from 0 to 1PiB"
  std::string by_default;
  TomlForm form = TomlForm::text;
  std::function<Status(Config&, const std::string&)> set;  ///< from text; a list has commas
  std::function<std::string(const Config&)> get;           ///< the text that `set` reads back

  /// Text that says what it decides, what it accepts, and its default.
  std::string help() const;
};

/// Table of all keys, in order of the printed configuration: keys of one table stand together.
const std::vector<Key>& config_keys();
/// The key of this name, or null.
const Key* find_key(const std::string& name);

}  // namespace kv
