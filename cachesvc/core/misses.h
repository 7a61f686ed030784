// Misses: what the first token that a hit does not serve lacks, and since when. Reads the index,
// the tree and what is remembered of departures; changes nothing. Loop thread only.
#pragma once

#include "cachesvc/core/departures.h"
#include "cachesvc/core/object_index.h"
#include "cachesvc/core/plan.h"

namespace kv {

class Misses {
 public:
  Misses(Env& env, ObjectIndex& index, const Departures& departures)
      : env_(env), index_(index), departures_(departures) {}

  /// Fills the record but for its number, times and tiers: `served` of the query's tokens are
  /// served of this hit. `limit`: what kept it shorter than the hit's own reasons; nothing: none.
  void explain(const RealmState& realm, const Query& query, const Hit& hit, uint32_t served,
               Missing limit, RequestRecord& out) const;

 private:
  bool departed(const Id& id, ObjectKind kind, RequestRecord& out) const;
  void gap(const RealmState& realm, const Query& query, const Hit& hit, uint32_t position,
           RequestRecord& out) const;
  void beyond(const RealmState& realm, const Query& query, const Hit& hit,
              RequestRecord& out) const;
  bool elsewhere(const RealmState& realm, const Query& query, RequestRecord& out) const;
  void nearest_end(const RealmState& realm, const Hit& hit, RequestRecord& out) const;

  Env& env_;
  ObjectIndex& index_;
  const Departures& departures_;
};

/// Tokens of a hit by the tier that its objects lie in now.
void split_tiers(const RealmState& realm, const Hit& hit, RequestRecord& out);

}  // namespace kv
