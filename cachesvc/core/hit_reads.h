// HitReads: brings into RAM what a planned hit lacks: room for all of it, then its reads, a window
// at a time.
//
//   read ──> room for all ──┬─> window of reads ──more──> window …  ──all, or unwanted──> then()
//                           └─> none: the fetch aims lower ──────────────────────────────> then()
//
// Fetches calls; the fetch plans anew in then(), whatever was read. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <set>

#include "cachesvc/core/object_index.h"
#include "cachesvc/core/promoter.h"
#include "cachesvc/core/ram_room.h"
#include "cachesvc/core/running_fetch.h"

namespace kv {

class HitReads {
 public:
  HitReads(Env& env, ObjectIndex& index, RamRoom& room, Promoter& promoter)
      : env_(env), index_(index), room_(room), promoter_(promoter) {}
  HitReads(const HitReads&) = delete;  // calls point here
  HitReads& operator=(const HitReads&) = delete;

  /// True if some batch of reads brings this object, and the fetch is one that asks again: it needs
  /// no room and no read of its own.
  bool coming(const RunningFetch& f, const Record& record) const {
    return f.polls() && coming_.contains(record.name);
  }
  /// Reads the hit's missing objects. Its `pins` are kept until then, so that what is in RAM
  /// already makes no room for the rest. Not called: then(), where other batches bring all of it.
  void read(const RunningFetchPtr& f, const Hit& hit, const FetchCost& cost, Pins pins,
            std::function<void()> then);

 private:
  struct Batch;
  using BatchPtr = std::shared_ptr<Batch>;
  std::vector<Record*> missing(const RunningFetch& f, const Hit& hit, const FetchCost& cost) const;
  void ask_for_room(const RunningFetchPtr& f, const BatchPtr& batch, Room room);
  void begin_window(const RunningFetchPtr& f, const BatchPtr& batch);
  void begin_reads(const RunningFetchPtr& f, const BatchPtr& batch);
  void read_done(const RunningFetchPtr& f, const BatchPtr& batch);
  void came(const Batch& batch);

  Env& env_;
  ObjectIndex& index_;
  RamRoom& room_;
  Promoter& promoter_;
  std::multiset<ObjectName> coming_;  // objects of all batches of reads that have not ended
};

}  // namespace kv
