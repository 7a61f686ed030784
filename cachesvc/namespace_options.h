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

/// Begins the name of a guest's own namespace; its user's number follows.
inline constexpr const char* kGuestPrefix = "uid-";

/// Limits of a namespace; 0: none of its own. RAM and SSD are shares that it can count on:
/// more is its own while nobody else needs it.
struct NamespaceQuota {
  uint64_t ram_bytes = 0;  ///< RAM of its objects
  uint64_t ssd_bytes = 0;  ///< allocated bytes of its files
  uint32_t connections = 0;
  uint32_t reservations = 0;
  uint32_t models = 0;
  uint32_t requests = 0;         ///< calls under way at a time
  uint64_t in_flight_bytes = 0;  ///< bodies and decoded replies under way at a time
  bool operator==(const NamespaceQuota&) const = default;
};
inline constexpr size_t kMaxNamespaces = 256;  ///< with a quota or a configuration table

inline constexpr size_t kMinTokenBytes = 16;

/// A namespace's table of the configuration: whose it is, and what it may have.
struct NamespaceRule {
  std::string name;
  std::vector<uint32_t> users;  ///< user ids that need no token
  std::string token_file;       ///< path; empty: none
  std::string token;            ///< the file's content; empty: none. Never in a log or message
  NamespaceQuota quota;
};

}  // namespace kv
