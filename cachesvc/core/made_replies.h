// MadeReplies: makes the objects of a reply that are not leased as they lie in RAM: decoded, or cut
// to a selection. Room for all of them first, then a job on a worker for each, in turns with other
// namespaces' (FairTasks).
//
// A reply that has to wait for its room pins nothing meanwhile, as what it pins may be what another
// one waits for: it gets its room, and the fetch plans again.
//
// Fetches calls. Loop thread only, but for the jobs.
#pragma once

#include <functional>
#include <memory>

#include "cachesvc/core/fair_tasks.h"
#include "cachesvc/core/ram_room.h"
#include "cachesvc/core/running_fetch.h"

namespace kv {

class MadeReplies {
 public:
  MadeReplies(Env& env, RamRoom& room)
      : env_(env), room_(room), decodes_(env.workers, env.options.workers) {}
  MadeReplies(const MadeReplies&) = delete;  // jobs point here
  MadeReplies& operator=(const MadeReplies&) = delete;

  /// Calls of one reply; neither follows where the fetch has ended, or an object could not be made,
  /// which fails it.
  struct Then {
    std::function<void(FetchReply)> made;
    /// The fetch plans again, and its reply's pins are gone: it has its room now
    /// (RunningFetch::reply_room), or there is none and it aims lower.
    std::function<void()> again;
  };
  /// Puts objects as the fetch wants them in place of those that the reply leases.
  void make(const RunningFetchPtr& f, FetchReply reply, Then then);
  void check_invariants() const { decodes_.check_invariants(); }

 private:
  struct Making;
  using MakingPtr = std::shared_ptr<Making>;
  void count_bytes(const RunningFetchPtr& f, const MakingPtr& making);
  void ask_for_room(const RunningFetchPtr& f, const MakingPtr& making);
  static void let_go(Making& making);
  void begin(const RunningFetchPtr& f, const MakingPtr& making);
  void make_one(const RunningFetchPtr& f, const MakingPtr& making, size_t at);
  void made_all(const RunningFetchPtr& f, Making& making);

  Env& env_;
  RamRoom& room_;
  FairTasks decodes_;
};

}  // namespace kv
