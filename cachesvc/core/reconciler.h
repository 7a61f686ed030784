// Reconciler: puts what a start finds into the index. The directory is opened and read, and the
// index learns what is on the SSD, before anything is served. Files that the catalog doesn't know,
// beyond the first adopt_at_start, are read in the background afterwards, at reconcile_rate: until
// then they are misses, and erases wait for them. A put of such a name waits for nobody: its bytes
// come before the file's, which serves again if RAM loses them; SsdLane remembers what goes while
// files are read. Nothing valid is deleted here but what is over the index's share.
//
//   open ──> idle ──next()──> reading ──> placing ──pause──> idle … ──all known──> done
//                                            │ ▲
//                                            └─┘ RAM has no room for them now
//
// Loop thread only.
#pragma once

#include "cachesvc/core/call.h"
#include "cachesvc/core/ends_search.h"
#include "cachesvc/core/placer.h"
#include "cachesvc/core/warm_start.h"

namespace kv {

class Reconciler {
 public:
  Reconciler(Env& env, ObjectIndex& index, Ends& ends, Records& records, SsdLane& lane,
             WritePace& pace, Found& found, Placer& placer, RamRoom& room, WarmStart& warm);
  Reconciler(const Reconciler&) = delete;  // jobs point here
  Reconciler& operator=(const Reconciler&) = delete;

  /// Opens the directory, on the calling thread, before the loop runs. Returns: what SsdTier::open
  /// and recover return.
  Status open();
  /// True if every file of the start is known: an erase must reach all of them.
  bool all_known() const { return found_.all_known(); }
  /// Leaves out the pauses of reconcile_rate until `call` has ended, which waits for all_known().
  void hurry(const std::shared_ptr<CallBase>& call);
  /// Ends the process if what was read and has no place is counted wrongly, or nothing will go on.
  void check_invariants() const;

 private:
  Status open_tier(Recovery& recovery);
  void next();
  uint64_t files_at_a_time() const;
  void read_files();
  void place();
  bool in_hurry();
  void done();
  void find_ends();

  Env& env_;
  ObjectIndex& index_;
  Ends& ends_;
  Records& records_;
  SsdLane& lane_;
  WritePace& pace_;
  Found& found_;
  Placer& placer_;
  RamRoom& room_;
  WarmStart& warm_;
  bool reading_ = false;                          // a read is under way
  std::vector<KnownObject> unplaced_;             // read, and not yet in the index
  std::vector<std::weak_ptr<CallBase>> hurried_;  // calls that wait
  std::unique_ptr<EndsSearch> ends_search_;       // behind all that
  Timer pause_;
};

}  // namespace kv
