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

#include <map>

#include "cachesvc/core/call.h"
#include "cachesvc/core/ends_search.h"
#include "cachesvc/core/warm_start.h"

namespace kv {

class Reconciler {
 public:
  Reconciler(Env& env, ObjectIndex& index, Ends& ends, Records& records, SsdLane& lane,
             WritePace& pace, Found& found, Models& models, Spiller& spiller, RamRoom& room,
             WarmStart& warm);
  Reconciler(const Reconciler&) = delete;  // jobs point here
  Reconciler& operator=(const Reconciler&) = delete;

  /// Opens the directory, on the calling thread, before the loop runs. Returns: what SsdTier::open
  /// and recover return.
  Status open();
  /// True if every file of the start is known: an erase must reach all of them.
  bool all_known() const { return found_.all_known(); }
  /// Leaves out the pauses of reconcile_rate until `call` has ended, which waits for all_known().
  void hurry(const std::shared_ptr<CallBase>& call);
  /// The place behind which the scrubber goes on, kept over the restart.
  uint16_t scrubbed_place() const { return scrubbed_; }
  /// Ends the process if what was read and has no place is counted wrongly, or nothing will go on.
  void check_invariants() const;

 private:
  /// A record that has its place in the index, and its file.
  struct Adopted {
    Record* record;
    const KnownObject* known;
  };
  Status open_tier(Recovery& recovery);
  void adopt_models(Recovery& recovery);
  RealmState* realm_of(const Object& object);
  void adopt(const std::vector<KnownObject>& objects);
  bool link(const KnownObject& known, std::vector<Adopted>& linked);
  bool adopt_orphan(const KnownObject& known);
  void keep_most_recent(std::vector<KnownObject>& objects);
  void drop_over_share(std::vector<KnownObject>& objects);
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
  Models& models_;
  Spiller& spiller_;
  RamRoom& room_;
  WarmStart& warm_;
  Charge read_buffers_;                                    // pays for the tier's, all but one
  bool reading_ = false;                                   // a read is under way
  std::vector<KnownObject> unplaced_;                      // read, and not yet in the index
  std::map<Id, std::shared_ptr<const Profile>> profiles_;  // kept until all is read
  std::vector<std::weak_ptr<CallBase>> hurried_;           // calls that wait
  uint16_t scrubbed_ = 0;
  std::unique_ptr<EndsSearch> ends_search_;  // behind all that
  Timer pause_;
};

}  // namespace kv
