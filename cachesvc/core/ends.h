// Ends: the ends of entries, and the objects evicted first because they serve none: superseded
// tails with all that hangs on them, then supplements and snapshots far from any end, the farthest
// first. So no other object is evicted to keep a turn that a longer one has superseded. Loop thread
// only.
#pragma once

#include <unordered_map>
#include <vector>

#include "cachesvc/core/object_index.h"

namespace kv {

/// True if an entry of n tokens needs this supplement or snapshot to be restorable at one of its
/// own ends.
bool serves_end(const Record& attached, uint32_t n);

class Ends {
 public:
  explicit Ends(ObjectIndex& index) : index_(index) {}

  /// Marks the end of an entry of n tokens with `path` (its blocks and perhaps a tail, root first):
  /// supplements and snapshots that serve it stay like everything else, the path's others go the
  /// earlier the farther away they are. Snapshots where entries part stay too.
  void mark(RealmState& realm, const std::vector<NodeId>& path, uint32_t n);
  /// Marks a tail whose tokens a longer tail or a block holds too.
  void supersede(Record& tail);
  /// Marks everything after recovery: superseded tails, distances of supplements and snapshots from
  /// an end.
  void find_all();

 private:
  static constexpr uint32_t kNoEnd = UINT32_MAX;  // no end below it that isn't superseded
  using EndDistances = std::unordered_map<NodeId, uint32_t>;  // in blocks
  bool end_lives(const Record& attached);
  void find_superseded(RealmState& realm);
  void find_end(Record& snapshot, const EndDistances& distance);
  void find_all_of(RealmState& realm);

  ObjectIndex& index_;
};

}  // namespace kv
