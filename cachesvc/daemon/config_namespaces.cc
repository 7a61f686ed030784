// Namespace tables: read, checked, printed.
#include "cachesvc/daemon/config_namespaces.h"

#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "cachesvc/daemon/config_secret.h"
#include "cachesvc/daemon/config_toml.h"
#include "proto/message.h"

namespace kv {
namespace {

constexpr uint32_t kNobody = UINT32_MAX;
constexpr uint64_t kMinQuotaBytes = 1ull << 20;
constexpr uint32_t kMaxQuotaCount = 1u << 20;

// A table while it is read.
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

Status read_token(const toml::node& node, Reading& at) {
  auto path = node.value_exact<std::string>();
  if (!path || path->empty()) return wrong(at, "expected a path");
  auto token = read_secret("token file", *path);
  if (!token.ok()) return wrong(at, token.status().message());
  at.rule.token_file = *path;
  at.rule.token = std::move(*token);
  return {};
}

// A size of at least 1 MiB, as a text.
Status read_size(const toml::node& node, Reading& at, uint64_t& into) {
  auto text = node.value_exact<std::string>();
  auto size = text ? parse_size(*text) : Result<uint64_t>(Status(StatusCode::not_found, ""));
  if (!size.ok() || *size < kMinQuotaBytes) {
    return wrong(at,
                 "expected a size such as \"2GiB\", of at least " + format_size(kMinQuotaBytes));
  }
  into = *size;
  return {};
}
Status read_ram(const toml::node& node, Reading& at) {
  return read_size(node, at, at.rule.quota.ram_bytes);
}
Status read_ssd(const toml::node& node, Reading& at) {
  return read_size(node, at, at.rule.quota.ssd_bytes);
}
Status read_in_flight(const toml::node& node, Reading& at) {
  return read_size(node, at, at.rule.quota.in_flight_bytes);
}

template <uint32_t NamespaceQuota::*field>
Status read_count(const toml::node& node, Reading& at) {
  auto number = node.value_exact<int64_t>();
  if (!number || *number < 1 || *number > kMaxQuotaCount) {
    return wrong(at, "expected a whole number from 1 to " + std::to_string(kMaxQuotaCount));
  }
  at.rule.quota.*field = static_cast<uint32_t>(*number);
  return {};
}

struct TableKey {
  const char* name;
  Status (*read)(const toml::node& node, Reading& at);
};
constexpr TableKey kKeys[] = {{"name", read_name},
                              {"users", read_users},
                              {"token_file", read_token},
                              {"ram", read_ram},
                              {"ssd", read_ssd},
                              {"connections", read_count<&NamespaceQuota::connections>},
                              {"reservations", read_count<&NamespaceQuota::reservations>},
                              {"models", read_count<&NamespaceQuota::models>},
                              {"requests", read_count<&NamespaceQuota::requests>},
                              {"in_flight", read_in_flight}};

Status read_key(const std::string& name, const toml::node& node, Reading& at) {
  std::vector<std::string> names;
  for (const TableKey& key : kKeys) {
    if (name == key.name) return key.read(node, at);
    names.emplace_back(key.name);
  }
  const std::string guess = nearest(name, names);
  return wrong(at, "unknown key" + (guess.empty() ? "" : ", did you mean \"" + guess + "\"?"));
}

// The table's rule, unless it has no name.
std::optional<NamespaceRule> read_table(const toml::node& node, const std::string& file,
                                        Mistakes& mistakes) {
  Reading at;
  at.where = file + ":" + std::to_string(node.source().begin.line) + ": namespace";
  const toml::table* table = node.as_table();
  if (table == nullptr) {
    mistakes.add(wrong(at, "expected tables [[namespace]]"));
    return std::nullopt;
  }
  for (const auto& [key, value] : *table) {
    const std::string name(key.str());
    at.where = file + ":" + std::to_string(value.source().begin.line) + ": namespace." + name;
    mistakes.add(read_key(name, value, at));
  }
  at.where = file + ":" + std::to_string(node.source().begin.line) + ": namespace.name";
  if (!table->contains("name")) mistakes.add(wrong(at, "a table without it"));
  if (at.rule.name == kEveryNamespace && at.rule.quota != NamespaceQuota{}) {
    mistakes.add(wrong(at, "the table \"*\" has no quota: it is of no one namespace"));
  }
  if (at.rule.name.empty()) return std::nullopt;
  return std::move(at.rule);
}

void add_rule(NamespaceRule& rule, const toml::node& node, const std::string& file,
              std::vector<NamespaceRule>& rules, Mistakes& mistakes) {
  const bool twice = std::any_of(rules.begin(), rules.end(),
                                 [&](const NamespaceRule& r) { return r.name == rule.name; });
  if (twice) {
    mistakes.add(invalid_argument(file + ":" + std::to_string(node.source().begin.line) +
                                  ": namespace.name: a second table of \"" + rule.name + "\""));
  } else {
    rules.push_back(std::move(rule));
  }
}

}  // namespace

std::vector<NamespaceRule> read_namespaces(const std::string& file, Mistakes& mistakes) {
  std::vector<NamespaceRule> rules;
  try {
    const toml::table table = toml::parse_file(file);
    const toml::array* all = table["namespace"].as_array();
    if (all == nullptr) return rules;  // a value of another kind is no setting (read_toml)
    if (all->size() > kMaxNamespaces) {
      mistakes.add(invalid_argument(file + ": " + std::to_string(all->size()) +
                                    " tables [[namespace]], at most " +
                                    std::to_string(kMaxNamespaces)));
      return rules;
    }
    for (const toml::node& node : *all) {
      if (auto rule = read_table(node, file, mistakes))
        add_rule(*rule, node, file, rules, mistakes);
    }
  } catch (const toml::parse_error& e) {
    mistakes.add(invalid_argument(file + ": " + std::string(e.description())));
  }
  return rules;
}

namespace {

std::string print_quota(const NamespaceQuota& quota) {
  std::string out;
  auto size = [&](const char* name, uint64_t bytes) {
    if (bytes > 0) out += std::string(name) + " = " + toml_text(format_size(bytes)) + "\n";
  };
  auto count = [&](const char* name, uint32_t number) {
    if (number > 0) out += std::string(name) + " = " + std::to_string(number) + "\n";
  };
  size("ram", quota.ram_bytes);
  size("ssd", quota.ssd_bytes);
  count("connections", quota.connections);
  count("reservations", quota.reservations);
  count("models", quota.models);
  count("requests", quota.requests);
  size("in_flight", quota.in_flight_bytes);
  return out;
}

}  // namespace

std::string print_namespaces(const std::vector<NamespaceRule>& rules) {
  std::string out;
  for (const NamespaceRule& rule : rules) {
    out += "\n[[namespace]]\nname = " + toml_text(rule.name) + "\n";
    std::string users;
    for (uint32_t user : rule.users) users += (users.empty() ? "" : ", ") + std::to_string(user);
    out += "users = [" + users + "]\n";
    if (!rule.token_file.empty()) out += "token_file = " + toml_text(rule.token_file) + "\n";
    out += print_quota(rule.quota);
  }
  return out;
}

}  // namespace kv
