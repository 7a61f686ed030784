// Drain: the orderly end. New sessions, stores and opens are refused; erases end, all that waits
// for the SSD is written, then one sync and one checkpoint.
//
//   none ──drain()──> erases ──no erase, no publication is under way──> spilling ──nothing more is
//   written──> last job ──> answered
//
// Loop thread only.
#pragma once

#include "cachesvc/core/eraser.h"

namespace kv {

class Drain {
 public:
  Drain(Env& env, Records& records, SsdLane& lane, Recency& recency, ModelRecords& model_records,
        WritePace& pace, Spiller& spiller, Calls& calls, Eraser& eraser)
      : env_(env),
        records_(records),
        lane_(lane),
        recency_(recency),
        model_records_(model_records),
        pace_(pace),
        spiller_(spiller),
        calls_(calls),
        eraser_(eraser) {}
  Drain(const Drain&) = delete;  // jobs point here
  Drain& operator=(const Drain&) = delete;

  void begin(Deadline deadline, std::function<void(Status)> done);
  void go_on();
  void close() { waiting_.clear(); }
  void check_invariants() const { KV_CHECK(waiting_.empty() || env_.draining()); }

 private:
  using CallPtr = std::shared_ptr<Call<Status>>;
  enum class Step : uint8_t { erases, spilling };
  struct Waiting {
    Step step;
    CallPtr call;
  };
  bool erases_over() const { return eraser_.resting(); }
  bool spills_over() const;
  void ask_for_all();
  void last_job(const CallPtr& call);

  Env& env_;
  Records& records_;
  SsdLane& lane_;
  Recency& recency_;
  ModelRecords& model_records_;
  WritePace& pace_;
  Spiller& spiller_;
  Calls& calls_;
  Eraser& eraser_;
  std::vector<Waiting> waiting_;
};

}  // namespace kv
