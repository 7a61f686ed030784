// WarmStart: reads the most recently used objects back into RAM after a restart, in the background.
// Nothing is evicted for them, and the reads end as soon as others want RAM. It also keeps memory
// ready for the next promotion, which would otherwise wait for page faults. Loop thread only.
//
//   begin ──> choosing, in steps over all that is stored ──> reading, a few at a time ──> ended
#pragma once

#include <memory>
#include <vector>

#include "cachesvc/core/promoter.h"
#include "cachesvc/core/ram_room.h"

namespace kv {

class WarmStart {
 public:
  WarmStart(Env& env, ObjectIndex& index, SsdLane& lane, RamRoom& room, Promoter& promoter)
      : env_(env), index_(index), lane_(lane), room_(room), promoter_(promoter) {}

  /// Begins the reads. Precondition: every file of the start is known.
  void begin();
  /// Prepares memory for the next promotion, unless one is under way.
  void keep_ready();

 private:
  /// An object that is wanted in RAM.
  struct Chosen {
    uint64_t recency = 0;
    uint64_t bytes = 0;  ///< that it will take
    PinnedName name;
  };
  struct Older {
    bool operator()(const Chosen& a, const Chosen& b) const { return a.recency < b.recency; }
  };
  struct Newer {
    bool operator()(const Chosen& a, const Chosen& b) const { return a.recency > b.recency; }
  };
  void choose(NodeId first);
  void consider(const Record& record);
  Record* missing_on_path(Record& record);
  void read_next();
  void end();

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  RamRoom& room_;
  Promoter& promoter_;
  std::vector<std::weak_ptr<RealmState>> realms_;  // still to choose from, the last one first
  std::vector<Chosen> chosen_;  // a heap: the oldest first while choosing, then the newest
  uint64_t chosen_bytes_ = 0;   // while choosing
  uint64_t bytes_left_ = 0;     // while reading
  bool making_ready_ = false;
  uint64_t ready_after_ = UINT64_MAX;  // promotions counted when memory was last made ready
};

}  // namespace kv
