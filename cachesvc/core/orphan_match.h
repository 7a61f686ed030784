// OrphanMatch: one query against many orphans, whose tokens are known in part. An erase must take
// every orphan that it can't exclude. Loop thread only.
#pragma once

#include <map>
#include <vector>

#include "cachesvc/core/object_index.h"
#include "proto/client.h"

namespace kv {

class OrphanMatch {
 public:
  /// `index` and `query` outlive it.
  OrphanMatch(ObjectIndex& index, const Query& query) : index_(index), query_(query) {}

  /// False if the orphan's entry surely does not begin with the query, or ends inside it: tokens
  /// are compared as far as they are known, and the id of a lost block with what the query would
  /// give it.
  bool may_begin(const Orphan& orphan);

 private:
  bool node_begins(const RealmState& realm, NodeId node) const;
  /// The id of the query's block that ends at `end`; made once for each realm.
  const Id& id_at(const RealmState& realm, uint32_t end);

  ObjectIndex& index_;
  const Query& query_;
  std::map<uint64_t, std::vector<Id>> ids_;  ///< by RealmState::index
};

}  // namespace kv
