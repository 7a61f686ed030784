// WarmStart: reads the most recently used objects back into RAM after a restart, in the background.
// Nothing is evicted for them, and the reads end as soon as others want RAM. It also keeps memory
// ready for the next promotion, which would otherwise wait for page faults. Loop thread only.
#pragma once

#include <deque>

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
  void read_next();

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  RamRoom& room_;
  Promoter& promoter_;
  std::deque<PinnedName> left_;
  bool making_ready_ = false;
  uint64_t ready_after_ = UINT64_MAX;  // promotions counted when memory was last made ready
};

}  // namespace kv
