// Sweeps: whole namespaces out of RAM, without losing anything: what is on the SSD leaves, the rest
// is asked to be written, and leaves with a later sweep. Or off the SSD: what RAM has stays there,
// the rest is lost. A sweep goes over the nodes of the namespace's trees, some in each handler,
// children before their parents as far as a round finds them, until a round finds nothing more.
// Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/leaving.h"
#include "cachesvc/core/metrics.h"
#include "cachesvc/core/models.h"
#include "cachesvc/core/recency.h"
#include "cachesvc/core/spiller.h"

namespace kv {

class Sweeps {
 public:
  Sweeps(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, const Found& found,
         Recency& recency, Spiller& spiller, const Models& models, Calls& calls)
      : env_(env),
        index_(index),
        records_(records),
        lane_(lane),
        found_(found),
        recency_(recency),
        spiller_(spiller),
        models_(models),
        calls_(calls),
        leaving_(env) {}
  Sweeps(const Sweeps&) = delete;  // handlers point here
  Sweeps& operator=(const Sweeps&) = delete;

  void demote(uint64_t session, CallTerms terms, std::function<void(Result<DemoteAllReply>)> done);
  /// Answers when the files are gone; `deferred` is 0. Returns: also unavailable (recovering).
  void clear_ssd(uint64_t session, CallTerms terms,
                 std::function<void(Result<DemoteAllReply>)> done);

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  JobPtr begin(uint64_t session, CallTerms terms, std::function<void(Result<DemoteAllReply>)> done);
  void step(const JobPtr& job);
  void look(Job& job, Record& record);
  void take_off_ssd(Job& job, Record& record, std::vector<ObjectName>& gone);
  void unlink(const JobPtr& job, std::vector<ObjectName> gone);
  static void answer(const JobPtr& job);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  const Found& found_;
  Recency& recency_;
  Spiller& spiller_;
  const Models& models_;
  Calls& calls_;
  Leaving leaving_;
};

}  // namespace kv
