// Levels: what a commit is told of its path's way to the SSD, and the wait for it. `spilled` and
// `durable` are said of files that were written or read since the start: a commit that asks for one
// of them has the others read, a few at a time, as a promotion reads them. The level of a path is
// the lowest of its objects and of its model's records. A wait ends when its level is reached, when
// nothing under way can raise it, or shortly before the call's deadline. It is looked at whenever
// something has moved, and costs one search as long as the object is under way that it was found to
// wait for; its whole path is looked at again when that one is done. Loop thread only.
#pragma once

#include <list>

#include "cachesvc/core/call.h"
#include "cachesvc/core/promoter.h"
#include "cachesvc/core/ram_room.h"

namespace kv {

/// A commit that is visible and wants to know more.
struct CommitWait {
  std::vector<PinnedName> path;  ///< all that its entry consists of
  std::shared_ptr<ModelState> model;
  Durability wait_for = Durability::accepted;
  CommitReply reply;
  std::shared_ptr<Call<Result<CommitReply>>> call;

  // Used by Levels alone.
  enum class Read : uint8_t { none, wanted, under_way, no_room };
  Read read = Read::none;     ///< of files that nobody has read since the start
  size_t awaited = SIZE_MAX;  ///< place in the path of an object under way; SIZE_MAX: none is known
  bool awaits_sync = false;   ///< all of the path is written: that one's sync is awaited
  uint64_t failed_syncs = 0;  ///< of the syncer, when the wait began
  Clock::time_point answer_at = Clock::time_point::max();  ///< with what was reached by then
  std::unique_ptr<Timer> timer;
};

class Levels {
 public:
  Levels(Env& env, ObjectIndex& index, SsdLane& lane, Spiller& spiller, Syncer& syncer,
         RamRoom& room, Promoter& promoter)
      : env_(env),
        index_(index),
        lane_(lane),
        spiller_(spiller),
        syncer_(syncer),
        room_(room),
        promoter_(promoter) {}
  Levels(const Levels&) = delete;  // timers point here
  Levels& operator=(const Levels&) = delete;

  void wait(CommitWait wait);
  /// Answers those whose level is reached, or never will be; asks for what the others need.
  void answer();
  void close() { waits_.clear(); }

 private:
  using WaitPtr = std::shared_ptr<CommitWait>;
  /// How far a path is by now.
  struct Standing {
    Durability level = Durability::none;
    bool stuck = false;         ///< nothing under way can raise the level
    bool unread = false;        ///< nobody has read one of its files since the start
    size_t awaited = SIZE_MAX;  ///< place of the last object below `durable` that is under way
  };
  Standing standing_of_model(const CommitWait& wait) const;
  Standing standing(const CommitWait& wait);
  bool still_under_way(const CommitWait& wait);
  bool look(CommitWait& wait, bool& wants_sync);
  void finish(CommitWait& wait);
  void read_paths();
  void read_path(const WaitPtr& wait);
  void read_now(const std::vector<PinnedName>& names, RoomCharges& room);

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  Spiller& spiller_;
  Syncer& syncer_;
  RamRoom& room_;
  Promoter& promoter_;
  std::list<WaitPtr> waits_;
  bool reading_ = false;  // read_paths() is on the stack
};

}  // namespace kv
