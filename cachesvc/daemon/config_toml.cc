// Values between TOML and the texts of settings.
#include "cachesvc/daemon/config_toml.h"

#include <toml++/toml.h>

#include <cstdio>
#include <optional>
#include <sstream>
#include <string_view>

#include "cachesvc/daemon/config_keys.h"
#include "cachesvc/daemon/config_names.h"
#include "cachesvc/daemon/config_namespaces.h"

namespace kv {
namespace {

constexpr size_t kHelpColumns = 96;

bool is_list(TomlForm form) {
  return form == TomlForm::list_of_texts || form == TomlForm::list_of_numbers;
}

// A string or a whole number; nothing of anything else.
std::optional<std::string> text_of(const toml::node& node) {
  if (auto text = node.value_exact<std::string>()) return text;
  if (auto number = node.value_exact<int64_t>()) return std::to_string(*number);
  return std::nullopt;
}

// Items of a list, with commas between them.
std::optional<std::string> list_of(const toml::array& items) {
  std::string list;
  for (const auto& item : items) {
    auto text = text_of(item);
    if (!text) return std::nullopt;
    list += (list.empty() ? "" : ",") + *text;
  }
  return list;
}

void flatten(const toml::table& table, const std::string& prefix, const std::string& file,
             std::vector<Setting>& out, Mistakes& mistakes) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    if (key == "namespace" && node.is_array()) continue;  // config_namespaces.h
    if (const auto* sub = node.as_table()) {
      flatten(*sub, key + ".", file, out, mistakes);
      continue;
    }
    const std::string where = file + ":" + std::to_string(node.source().begin.line);
    const Key* known = find_key(key);
    if (known == nullptr) {
      mistakes.add(unknown_key(where, key));
      continue;
    }
    const bool list = is_list(known->form);
    auto value = list && node.is_array() ? list_of(*node.as_array()) : text_of(node);
    if (value) {
      out.push_back({key, *value, where});
    } else {
      mistakes.add(invalid_argument(where + ": " + key + ": expected a string or a whole number" +
                                    (list ? ", or a list of these" : "")));
    }
  }
}

std::string toml_value(TomlForm form, const std::string& value) {
  if (form == TomlForm::text) return toml_text(value);
  if (form == TomlForm::number) return value;
  std::stringstream items(value);
  std::string list;
  for (std::string item; std::getline(items, item, ',');) {
    item.erase(0, item.find_first_not_of(' '));
    if (!list.empty()) list += ", ";
    list += form == TomlForm::list_of_texts ? toml_text(item) : item;
  }
  return "[" + list + "]";
}

// The text as comment lines of at most kHelpColumns.
std::string comment(const std::string& text) {
  std::stringstream words(text);
  std::string out, line = "#";
  for (std::string word; words >> word;) {
    if (line.size() + 1 + word.size() > kHelpColumns) {
      out += line + "\n";
      line = "#";
    }
    line += " " + word;
  }
  return out + line + "\n";
}

// A path may hold anything, a comment one line.
std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  }
  return text;
}

}  // namespace

std::string toml_text(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      char escape[8];
      std::snprintf(escape, sizeof(escape), "\\u%04X", static_cast<unsigned>(c));
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

Result<std::vector<Setting>> read_toml(const std::string& file, Mistakes& mistakes) {
  toml::table table;
  try {
    table = toml::parse_file(file);
  } catch (const toml::parse_error& e) {
    return invalid_argument(file + ":" + std::to_string(e.source().begin.line) + ": " +
                            std::string(e.description()));
  }
  std::vector<Setting> settings;
  flatten(table, "", file, settings, mistakes);
  return settings;
}

std::string print_config(const Config& config) {
  std::string out = comment(
      "All settings of cachesvc with the values in force; behind each is where it came from. This "
      "is a file for --config. Over it win the variables CACHESVC_* (" +
      env_name("tier.ram.budget") + "), over these the flags.");
  std::string table;
  for (const Key& key : config_keys()) {
    const size_t dot = key.name.rfind('.');
    if (table != key.name.substr(0, dot)) {
      table = key.name.substr(0, dot);
      out += "\n[" + table + "]\n";
    }
    out += comment(key.help());
    out += key.name.substr(dot + 1) + " = " + toml_value(key.form, key.get(config)) + "  # " +
           one_line(config.source.at(key.name)) + "\n";
  }
  return out + print_namespaces(config.server.namespaces);
}

}  // namespace kv
