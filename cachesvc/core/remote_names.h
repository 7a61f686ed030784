// Names of stored objects in the shared tier, and of those that would serve a query. REMOTE.md.
// Functions; remote_path() on a worker, the others on the loop.
#pragma once

#include <optional>
#include <vector>

#include "cachesvc/core/paths.h"
#include "cachesvc/remote/names.h"

namespace kv {

/// The record's name there; none if it stays local: a tail, and what belongs to one.
std::optional<RemoteName> remote_name(const Record& record);

/// The blocks of a query, and the state at its last position but one.
struct RemotePath {
  std::vector<Id> blocks;
  Id snapshot;  ///< at the last token but one
};
RemotePath remote_path(const Realm& realm, uint32_t block_tokens, const Query& query);

/// An object that would serve a query.
struct RemoteCandidate {
  RemoteName name;
  uint32_t first_token = 0, end_token = 0;
};
/// Candidates of the path, its blocks in order, each with what hangs on it behind it: rows of whole
/// blocks, and what block ends need.
std::vector<RemoteCandidate> remote_candidates(const RealmState& realm, const RemotePath& path,
                                               uint32_t tokens);

}  // namespace kv
