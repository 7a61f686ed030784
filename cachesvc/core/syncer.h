// Syncer: makes renamed files durable, by one sync of the folders for all that became visible
// before it.
//
//   idle ──schedule──> armed (durable_group_delay) ──> syncing ──> idle; progress()
//
// Loop thread only.
#pragma once

#include "cachesvc/core/ssd_lane.h"

namespace kv {

class Syncer {
 public:
  Syncer(Env& env, Records& records, SsdLane& lane)
      : env_(env),
        records_(records),
        lane_(lane),
        delay_(env.loop, env.handler([this] { run(); })) {}

  /// Syncs within durable_group_delay, for several at once.
  void schedule();
  /// Syncs now, unless a sync is under way.
  void run();
  /// Number of failed syncs: a wait that began before one is answered without it.
  uint64_t failed() const { return failed_; }

 private:
  void synced(uint64_t sync);
  void end();

  Env& env_;
  Records& records_;
  SsdLane& lane_;
  Timer delay_;
  bool syncing_ = false;
  uint64_t failed_ = 0;
};

}  // namespace kv
