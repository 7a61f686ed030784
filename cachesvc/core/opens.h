// Opens: choose the profile in force, write the model's records, make the codec. Opens that change
// something run one at a time, so that two clients can't put two profiles in force.
//
//   queued ──its turn──> asking (shared tier) ──> making (worker) ──> records (SSD) ──> done: in
//      │  └──nothing to ask──────────────────────────^   │                │         force, answered
//      └───────────────────────────────────────────────────┴────────────────┴──> done: in force
//                                                                      without them, or failed
//
// The loop decides by names and ids; whatever grows with the model (its checks, its codec, ids of
// profiles) is done by a worker, and paid for before. A device that hangs ends an open without its
// records. Loop thread only.
#pragma once

#include <deque>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/model_records.h"
#include "cachesvc/core/open_plan.h"
#include "cachesvc/core/ram_room.h"
#include "cachesvc/core/remote_profiles.h"

namespace kv {

class Opens {
 public:
  Opens(Env& env, SsdLane& lane, Models& models, ModelRecords& model_records,
        RemoteProfiles& profiles, RamRoom& room, Calls& calls)
      : env_(env),
        lane_(lane),
        models_(models),
        model_records_(model_records),
        profiles_(profiles),
        room_(room),
        calls_(calls) {}
  Opens(const Opens&) = delete;  // jobs point here
  Opens& operator=(const Opens&) = delete;

  void open(uint64_t session, OpenRequest request, CallTerms terms,
            std::function<void(Result<OpenReply>)> done);
  /// Gives up waiting for a device that hangs; the next open has its turn.
  void go_on();
  void close();
  /// Ends the process if a turn and its model's hold disagree.
  void check_invariants() const;

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;

  void next();
  void run(const JobPtr& job);
  void ask(const JobPtr& job);
  void heard(const JobPtr& job, const Result<RemoteProfile>& fleet);
  void make(const JobPtr& job);
  void made(const JobPtr& job, OpenMade made);
  void put_in_force(const JobPtr& job, bool records_written);
  OpenReply reply(const Job& job, const std::shared_ptr<ModelState>& model);
  void fail(const JobPtr& job, const Status& status);
  void end_turn(const JobPtr& job);

  Env& env_;
  SsdLane& lane_;
  Models& models_;
  ModelRecords& model_records_;
  RemoteProfiles& profiles_;
  RamRoom& room_;
  Calls& calls_;
  std::deque<JobPtr> queue_;
  JobPtr under_way_;
};

}  // namespace kv
