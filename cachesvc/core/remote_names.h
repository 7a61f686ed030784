// Names of stored objects in the shared tier, and of those that would serve a query. REMOTE.md.
// Functions; remote_path() on a worker, the others on the loop.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "cachesvc/core/paths.h"
#include "cachesvc/remote/shared_tier.h"

namespace kv {

/// The record's name there; none: it is an orphan, whose path is not known.
std::optional<RemoteName> remote_name(const Record& record);

/// The ids of a query's blocks, and of what a store of the query, or of all but its last token, has
/// at its end.
struct RemotePath {
  struct End {
    uint32_t tokens = 0;  ///< 0: there is no such store
    Id tail;              ///< zero: a block ends there
  };
  std::vector<Id> blocks;
  std::array<End, 2> ends;  ///< without the last token, and with it
  Id snapshot;              ///< at the last token but one
};
RemotePath remote_path(const Realm& realm, uint32_t block_tokens, const Query& query);

/// An object that would serve a query.
struct RemoteCandidate {
  RemoteName name;
  uint32_t first_token = 0;  ///< where the blocks before it end, or its own begins
  uint32_t end_token = 0;
};
/// Lists of the path's blocks, of a model whose stores have names that others can't compute; the
/// last ones of more than a question has.
std::vector<RemoteList> remote_lists(const RealmState& realm, const RemotePath& path);
/// Tails, snapshots and supplements that the lists name, as far as they are the query's. Worker.
struct RemoteListedName {
  ObjectName object;
  size_t depth = 0;             ///< of the block, or behind it of the tail or snapshot
  uint32_t first = 0, end = 0;  ///< tokens before it, or its own first; and to its end
};
std::vector<RemoteListedName> remote_listed(const Realm& realm, uint32_t block_tokens,
                                            const Query& query, const RemotePath& path,
                                            const std::vector<RemoteListed>& listed);

/// Candidates of the path in order: each block, behind it what hangs on it; the tails last. Apart
/// from blocks and tails these are the pieces that a store from nothing makes: of the query, of all
/// but its last token, and at each block end; and what is `listed`. `interval`: as EndRules' of
/// such stores.
std::vector<RemoteCandidate> remote_candidates(const RealmState& realm, const RemotePath& path,
                                               const std::vector<RemoteListedName>& listed,
                                               uint32_t interval);

}  // namespace kv
