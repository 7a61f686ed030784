// Ends: the ends of entries, and the objects evicted first because they serve none: superseded
// tails with all that hangs on them, then supplements and snapshots far from any end, the farthest
// first, but for those of ends that a client named. So no other object is evicted to keep a turn
// that a longer one has superseded. Loop thread only.
#pragma once

#include <vector>

#include "cachesvc/core/object_index.h"

namespace kv {

/// True if the supplement or snapshot is of what a cache of n tokens holds.
bool demanded_at(const Record& attached, uint32_t n);
/// True if an entry of n tokens needs this supplement or snapshot to be restorable at one of its
/// own ends.
bool serves_end(const Record& attached, uint32_t n);
/// Has the supplement or snapshot serve this end: the last object of an entry.
void serve_end(Record& attached, const Record& end);
/// True if two entries or more go on behind the snapshot, each its own way.
bool entries_part_at(const Record& snapshot);

class Ends {
 public:
  explicit Ends(ObjectIndex& index) : index_(index) {}

  /// Marks the end of an entry of n tokens with `path` (its blocks and perhaps a tail, root first):
  /// supplements and snapshots that serve it stay like everything else, the path's others go the
  /// earlier the farther away they are. Snapshots where entries part stay too.
  void mark(RealmState& realm, const std::vector<NodeId>& path, uint32_t n);
  /// Keeps what the path has for an end that a client named: it goes like everything else from now
  /// on, whatever becomes of the entry.
  struct Kept {
    Record* record;
    bool is_new;  ///< no earlier end had it
  };
  std::vector<Kept> keep(const RealmState& realm, const std::vector<NodeId>& path, uint32_t n);
  /// Keeps a supplement or snapshot of which the SSD says that an end was named.
  void keep(Record& attached);
  /// Marks a tail whose tokens a longer tail or a block holds too.
  void supersede(Record& tail);

  /// True if the entry whose end this one serves has not grown, and is still there.
  bool end_lives(const Record& attached);

 private:
  ObjectIndex& index_;
};

}  // namespace kv
