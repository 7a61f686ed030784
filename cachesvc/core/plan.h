// Plans: stored objects that a query could use, and those of them that serve it. Functions; loop
// thread only.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cachesvc/core/env.h"
#include "cachesvc/core/paths.h"
#include "index/holdings.h"

namespace kv {

/// The longest restorable prefix of a query, and the objects that serve it.
struct Hit {
  PrefixMatch match;
  uint32_t common = 0;
  RestorePlan plan;
  struct Use {
    Record* record;
    uint32_t end_token;
  };
  std::vector<Use> uses;          ///< each object once: blocks, tails, supplements, snapshots
  std::vector<size_t> more_used;  ///< of PlanOptions::more, those that serve
};

/// Stored objects that a query could use.
struct Candidates {
  PrefixMatch match;
  uint32_t common = 0;  ///< longest common prefix with anything stored
  std::vector<Holding> holdings;
  std::vector<Record*> records;
  /// The holding's record; null for one that the caller brought (Holding::object == 0).
  Record* record_of(const Holding& h) const { return h.object ? records[h.object - 1] : nullptr; }
};

/// `now` decides which failed reads are tried again. `more`: holdings of objects that aren't
/// stored yet (Holding::object == 0). `ram_only`: as if the SSD were empty.
struct PlanOptions {
  RestorableQuery limits;
  std::chrono::steady_clock::time_point now;
  bool ram_only = false;
  const std::vector<Holding>* more = nullptr;
};
/// Options of a query's plan now, all of it, by the core's limits.
PlanOptions plan_options(const Env& env, const Query& query);
Result<Hit> plan(RealmState& realm, const Query& query, const PlanOptions& options);
Result<Candidates> candidates(RealmState& realm, const Query& query, const PlanOptions& options);

/// A shorter length than the hit's: its last blocks are left out until at most `bytes` of `needed`,
/// the sum of `cost` over its objects, are left. Supplements and snapshots count as constant.
uint32_t shorter(const RealmState& realm, const Hit& hit, uint64_t needed, uint64_t bytes,
                 const std::function<uint64_t(const Record&)>& cost);

/// The reason why no more is served.
std::string shortfall_of(const RealmState& realm, const Hit& hit);

}  // namespace kv
