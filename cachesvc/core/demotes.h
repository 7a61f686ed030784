// Demotes: hits that are to leave RAM and stay on the SSD.
//
//   demote ──plan──> for each object, children first:
//                      bytes on the SSD   ──> leaves RAM
//                      in RAM only        ──> spill asked for ──> deferred ──written──> leaves RAM
//                      others need it     ──> stays
//
// An object stays while something beside the demote's own hold pins it, or while RAM has what other
// entries go on from it with. Bounds: kMostDeferred objects wait, in order, for the spiller;
// nothing is given up but by it. Loop thread only.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "cachesvc/core/holds.h"
#include "cachesvc/core/leaving.h"

namespace kv {

class Demotes {
 public:
  static constexpr size_t kMostDeferred = 4096;

  Demotes(Env& env, ObjectIndex& index, SsdLane& lane, Recency& recency, Spiller& spiller,
          Calls& calls, Holds& holds)
      : env_(env),
        index_(index),
        lane_(lane),
        recency_(recency),
        spiller_(spiller),
        calls_(calls),
        holds_(holds),
        leaving_(env) {}
  Demotes(const Demotes&) = delete;  // handlers point here
  Demotes& operator=(const Demotes&) = delete;

  void demote(uint64_t session, DemoteRequest request, CallTerms terms,
              std::function<void(Result<DemoteReply>)> done);
  /// Lets go of what has come to the SSD; follows progress().
  void go_on();
  void close() { deferred_.clear(); }
  void check_invariants() const { KV_CHECK(deferred_.size() <= kMostDeferred); }

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  struct Deferred {
    PinnedName name;
    uint64_t hold;
  };

  void step(const JobPtr& job);
  void ask(Job& job, const PinnedName& name);
  bool pinned(const Record& record, uint64_t hold) const;
  bool may_leave(const Record& record, uint64_t hold) const;
  void leave(Record& record);
  void answer(const Job& job) const;

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  Recency& recency_;
  Spiller& spiller_;
  Calls& calls_;
  Holds& holds_;
  Leaving leaving_;
  std::deque<Deferred> deferred_;  // children before parents
};

}  // namespace kv
