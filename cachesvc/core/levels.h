// Levels: the durability level that a commit's path has reached, and calls that wait for one. The
// level of a path is the lowest of its objects and of its model's records. `spilled` and `durable`
// hold only for files written or read since the start: a commit that waits for one of them has the
// other files read, a few at a time, like promotions. A wait ends when its level is reached, when
// nothing under way can raise it, or shortly before the call's deadline. Every progress() checks
// all waits. A check costs one search while the object that the path waits for is under way, and
// then a search of the whole path. Loop thread only.
#pragma once

#include <list>

#include "cachesvc/core/call.h"
#include "cachesvc/core/promoter.h"
#include "cachesvc/core/ram_room.h"

namespace kv {

/// A visible commit that waits for a level.
struct CommitWait {
  std::vector<PinnedName> path;  ///< every object of its entry
  std::shared_ptr<ModelState> model;
  Durability wait_for = Durability::accepted;
  CommitReply reply;
  std::shared_ptr<Call<Result<CommitReply>>> call;

  // Used by Levels alone.
  enum class Read : uint8_t { none, wanted, under_way, no_room };
  Read read = Read::none;     ///< reads of files unread since the start
  size_t awaited = SIZE_MAX;  ///< place in the path of an object under way; SIZE_MAX: none is known
  bool awaits_sync = false;   ///< the whole path is written, its sync is awaited
  uint64_t failed_syncs = 0;  ///< the syncer's count when the wait began
  Clock::time_point answer_at = Clock::time_point::max();  ///< whatever was reached
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
  /// Answers waits whose level is reached or can't be; asks for what the others need.
  void answer();
  void close() { waits_.clear(); }
  /// Ends the process if a wait has been left half looked at.
  void check_invariants() const;

 private:
  using WaitPtr = std::shared_ptr<CommitWait>;
  /// Progress of a path.
  struct Standing {
    Durability level = Durability::none;
    bool stuck = false;         ///< nothing under way can raise the level
    bool unread = false;        ///< one of its files is unread since the start
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
