// EndsSearch: what a start doesn't know of ends, found in steps, as it looks at all that is stored:
// superseded tails, and the distance of supplements and snapshots from an end. Realm by realm:
//
//   superseded ──> distances ──> attached ──> served ──> the next realm
//
// Objects come and go between two steps. A commit marks its own (Ends), so a step that has missed
// an object, or has the distance of one that is gone, only changes how soon something is evicted.
// Loop thread only.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "cachesvc/core/ends.h"

namespace kv {

class EndsSearch {
 public:
  EndsSearch(ObjectIndex& index, Ends& ends);
  EndsSearch(const EndsSearch&) = delete;  // one place in the search
  EndsSearch& operator=(const EndsSearch&) = delete;

  /// Looks at `nodes` nodes more, and at what hangs on them. Returns: false if none is left.
  bool step(size_t nodes);

 private:
  enum class Phase : uint8_t { superseded, distances, attached, served };
  static constexpr uint32_t kNoEnd = UINT32_MAX;  // no end below it that isn't superseded

  void look(RealmState& realm, NodeId node);
  void find_superseded(RealmState& realm, NodeId node);
  void find_distances(const RealmState& realm, NodeId node);
  void find_attached(RealmState& realm, NodeId node);
  void find_end(Record& snapshot);
  void find_served(RealmState& realm, NodeId node);
  uint32_t distance_of(NodeId node) const;
  void next_phase(const RealmState& realm);
  void next_realm();

  ObjectIndex& index_;
  Ends& ends_;
  std::vector<std::weak_ptr<RealmState>> left_;  // the last one is looked at
  Phase phase_ = Phase::superseded;
  NodeId next_ = kRootNode;
  size_t budget_ = 0;                              // nodes of this step
  std::unordered_map<NodeId, uint32_t> distance_;  // to an end, in blocks; none: there is no end
};

/// The whole search at once: before anything is served.
void find_all_ends(ObjectIndex& index, Ends& ends);

}  // namespace kv
