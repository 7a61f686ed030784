// Gate: users that may connect, and namespaces that each may enter.
//
// The service's own user and root name any namespace, with the admin right; so do the users and the
// token of the table named "*".
// Any other user connects if some list names it (allow_uids, or the users of a namespace), and
// enters:
//   a namespace with a table of its own: the users that it lists, and whoever brings its token;
//   without a table: `uid-N` alone, where N is the user's id.
// Tokens are compared in a time that does not depend on where they differ, and no answer tells a
// namespace that is not there from one that is somebody else's. Replaced as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cachesvc/daemon/server_options.h"
#include "cachesvc/namespace_options.h"
#include "proto/status.h"

namespace kv {

/// Compares a token or password of at most kMaxTokenBytes with the expected one; an empty one is
/// nobody's. The time tells the lengths at most.
bool same_secret(const std::string& expected, std::string_view given);

class Gate {
 public:
  /// `own`: the user that the service runs as.
  Gate(const ServerOptions& options, uint32_t own);

  /// True if users beside the service's own and root may connect.
  bool opens_to_others() const { return !users_.empty(); }
  /// True for the service's own user and root; all others are guests.
  bool is_admin(uint32_t user) const;
  /// Returns: denied.
  Status may_connect(uint32_t user) const;
  /// The right with which `user` enters `ns`. Returns: denied.
  Result<Right> enter(uint32_t user, const std::string& ns, std::string_view token) const;

 private:
  uint32_t own_;
  std::vector<NamespaceRule> rules_;
  std::vector<uint32_t> users_;  ///< sorted: others that may connect
};

}  // namespace kv
