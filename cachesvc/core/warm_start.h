// WarmStart: the most recently used objects come back into RAM after a restart, in the background:
// nothing is evicted for them, and it ends as soon as RAM is wanted by others. And memory is kept
// ready for the next promotion, which else waits for its first touch. Loop thread only.
#pragma once

#include <deque>

#include "cachesvc/core/promoter.h"
#include "cachesvc/core/ram_room.h"

namespace kv {

class WarmStart {
 public:
  WarmStart(Env& env, ObjectIndex& index, SsdLane& lane, RamRoom& room, Promoter& promoter)
      : env_(env), index_(index), lane_(lane), room_(room), promoter_(promoter) {}

  /// Begins, once all that the start found is known.
  void begin();
  /// After a start and after promotions, while nobody waits for one.
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
  uint64_t ready_after_ = UINT64_MAX;  // so many promotions memory was made ready
};

}  // namespace kv
