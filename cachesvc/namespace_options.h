// NamespaceOptions: whose a namespace is, and what a session of it may do. Plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv {

/// A session's right.
enum class Right : uint8_t {
  own,  ///< its namespace's calls, and stats of its namespace alone
  all,  ///< admin: it may name any namespace, and sees the stats of the whole service
};

/// The name of the table whose users and token have Right::all.
inline constexpr const char* kEveryNamespace = "*";
inline constexpr size_t kMinTokenBytes = 16;

/// A namespace's table of the configuration: whose it is.
struct NamespaceRule {
  std::string name;
  std::vector<uint32_t> users;  ///< user ids that need no token
  std::string token_file;       ///< path; empty: none
  std::string token;            ///< of the file; empty: none. Never in a log or message
};

}  // namespace kv
