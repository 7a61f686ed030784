// Users, namespaces and tokens.
#include "cachesvc/daemon/gate.h"

#include <algorithm>

#include "proto/message.h"

namespace kv {
namespace {

bool contains(const std::vector<uint32_t>& users, uint32_t user) {
  return std::find(users.begin(), users.end(), user) != users.end();
}

// Everybody that some list names, sorted.
std::vector<uint32_t> all_users(const ServerOptions& options) {
  std::vector<uint32_t> all = options.allow_uids;
  for (const NamespaceRule& rule : options.namespaces) {
    all.insert(all.end(), rule.users.begin(), rule.users.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

// Every byte of the longest secret is looked at.
bool same_secret(const std::string& expected, std::string_view given) {
  unsigned different = expected.size() == given.size() ? 0 : 1;
  for (size_t i = 0; i < kMaxTokenBytes; ++i) {
    unsigned a = i < expected.size() ? static_cast<unsigned char>(expected[i]) : 0;
    unsigned b = i < given.size() ? static_cast<unsigned char>(given[i]) : 0;
    different |= a ^ b;
  }
  return different == 0 && !expected.empty();
}

Gate::Gate(const ServerOptions& options, uint32_t own)
    : own_(own), rules_(options.namespaces), users_(all_users(options)) {}

bool Gate::is_admin(uint32_t user) const { return user == own_ || user == 0; }

Status Gate::may_connect(uint32_t user) const {
  if (is_admin(user) || std::binary_search(users_.begin(), users_.end(), user)) return {};
  return {StatusCode::denied, "user " + std::to_string(user) + " may not connect"};
}

Result<Right> Gate::enter(uint32_t user, const std::string& ns, std::string_view token) const {
  if (is_admin(user)) return Right::all;
  const std::string its_own = kGuestPrefix + std::to_string(user);
  bool every = false, this_one = false, has_table = false;
  for (const NamespaceRule& rule : rules_) {
    const bool enters = static_cast<int>(contains(rule.users, user)) |
                        static_cast<int>(same_secret(rule.token, token));
    every |= enters && rule.name == kEveryNamespace;
    this_one |= enters && rule.name == ns;
    has_table |= rule.name == ns;
  }
  if (every) return Right::all;
  if (has_table ? this_one : ns == its_own) return Right::own;
  return Status(StatusCode::denied, "namespace \"" + ns + "\" is not user " + std::to_string(user) +
                                        "'s, and no token of it came; without one that is " +
                                        its_own + ", or what [[namespace]] says");
}

}  // namespace kv
