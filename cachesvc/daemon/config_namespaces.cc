// Namespace tables: read, checked, printed.
#include "cachesvc/daemon/config_namespaces.h"

#include <toml++/toml.h>

#include <algorithm>
#include <array>

#include "cachesvc/daemon/config_toml.h"
#include "proto/message.h"
#include "storage/private_file.h"

namespace kv {
namespace {

constexpr size_t kMaxNamespaces = 256;
constexpr uint32_t kNobody = UINT32_MAX;

// One table under way.
struct Reading {
  NamespaceRule rule;
  std::string where;  // file:line: namespace.KEY
};

Status wrong(const Reading& at, const std::string& why) {
  return invalid_argument(at.where + ": " + why);
}

Status read_name(const toml::node& node, Reading& at) {
  auto name = node.value_exact<std::string>();
  if (!name || name->empty() || name->size() > kMaxNamespaceBytes) {
    return wrong(at, "expected a text of 1 to " + std::to_string(kMaxNamespaceBytes) + " bytes");
  }
  at.rule.name = *name;
  return {};
}

Status read_users(const toml::node& node, Reading& at) {
  const toml::array* items = node.as_array();
  if (items == nullptr) return wrong(at, "expected a list of user ids");
  for (const toml::node& item : *items) {
    auto user = item.value_exact<int64_t>();
    if (!user || *user < 0 || *user >= kNobody) return wrong(at, "expected a list of user ids");
    at.rule.users.push_back(static_cast<uint32_t>(*user));
  }
  return {};
}

// The bytes of the file but for one newline at the end.
Status read_token(const toml::node& node, Reading& at) {
  auto path = node.value_exact<std::string>();
  if (!path || path->empty()) return wrong(at, "expected a path");
  std::array<uint8_t, kMaxTokenBytes + 2> text{};
  auto size = read_private("token file", *path, text);
  if (!size.ok()) return wrong(at, size.status().message());
  if (*size > 0 && text[*size - 1] == '\n') --*size;
  if (*size < kMinTokenBytes || *size > kMaxTokenBytes) {
    return wrong(at, "token file " + *path + ": expected " + std::to_string(kMinTokenBytes) +
                         " to " + std::to_string(kMaxTokenBytes) + " bytes and a newline");
  }
  at.rule.token_file = *path;
  at.rule.token.assign(text.begin(), text.begin() + static_cast<ptrdiff_t>(*size));
  return {};
}

struct TableKey {
  const char* name;
  Status (*read)(const toml::node& node, Reading& at);
};
constexpr TableKey kKeys[] = {
    {"name", read_name}, {"users", read_users}, {"token_file", read_token}};

Status read_key(const std::string& name, const toml::node& node, Reading& at) {
  std::vector<std::string> names;
  for (const TableKey& key : kKeys) {
    if (name == key.name) return key.read(node, at);
    names.emplace_back(key.name);
  }
  const std::string guess = nearest(name, names);
  return wrong(at, "unknown key" + (guess.empty() ? "" : ", did you mean \"" + guess + "\"?"));
}

Result<NamespaceRule> read_table(const toml::node& node, const std::string& file) {
  Reading at;
  at.where = file + ":" + std::to_string(node.source().begin.line) + ": namespace";
  const toml::table* table = node.as_table();
  if (table == nullptr) return wrong(at, "expected tables [[namespace]]");
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    at.where = file + ":" + std::to_string(value.source().begin.line) + ": namespace." + name;
    KV_RETURN_IF_ERROR(read_key(name, value, at));
  }
  if (at.rule.name.empty()) {
    at.where = file + ":" + std::to_string(node.source().begin.line) + ": namespace.name";
    return wrong(at, "a table without it");
  }
  return std::move(at.rule);
}

}  // namespace

Result<std::vector<NamespaceRule>> read_namespaces(const std::string& file) {
  std::vector<NamespaceRule> rules;
  try {
    const toml::table table = toml::parse_file(file);
    const toml::array* all = table["namespace"].as_array();
    if (all == nullptr) return rules;  // a value of another kind is no setting (read_toml)
    if (all->size() > kMaxNamespaces) {
      return invalid_argument(file + ": " + std::to_string(all->size()) +
                              " tables [[namespace]], at most " + std::to_string(kMaxNamespaces));
    }
    for (const toml::node& node : *all) {
      KV_ASSIGN_OR_RETURN(NamespaceRule rule, read_table(node, file));
      bool twice = std::any_of(rules.begin(), rules.end(),
                               [&](const NamespaceRule& r) { return r.name == rule.name; });
      if (twice) {
        return invalid_argument(file + ":" + std::to_string(node.source().begin.line) +
                                ": namespace.name: a second table of \"" + rule.name + "\"");
      }
      rules.push_back(std::move(rule));
    }
  } catch (const toml::parse_error& e) {
    return invalid_argument(file + ": " + std::string(e.description()));
  }
  return rules;
}

std::string print_namespaces(const std::vector<NamespaceRule>& rules) {
  std::string out;
  for (const NamespaceRule& rule : rules) {
    out += "\n[[namespace]]\nname = " + toml_text(rule.name) + "\n";
    std::string users;
    for (uint32_t user : rule.users) users += (users.empty() ? "" : ", ") + std::to_string(user);
    out += "users = [" + users + "]\n";
    if (!rule.token_file.empty()) out += "token_file = " + toml_text(rule.token_file) + "\n";
  }
  return out;
}

}  // namespace kv
