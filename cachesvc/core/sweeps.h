// Sweeps: whole namespaces out of RAM, without losing anything: what is on the SSD leaves, the rest
// is asked to be written, and leaves with a later sweep. It goes over the nodes of the namespace's
// trees, some in each handler, children before their parents as far as a round finds them, until a
// round finds nothing more. Loop thread only.
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
  Sweeps(Env& env, ObjectIndex& index, SsdLane& lane, Recency& recency, Spiller& spiller,
         const Models& models, Calls& calls)
      : env_(env),
        index_(index),
        lane_(lane),
        recency_(recency),
        spiller_(spiller),
        models_(models),
        calls_(calls),
        leaving_(env) {}
  Sweeps(const Sweeps&) = delete;  // handlers point here
  Sweeps& operator=(const Sweeps&) = delete;

  void demote(uint64_t session, CallTerms terms, std::function<void(Result<DemoteAllReply>)> done);

 private:
  struct Job;
  using JobPtr = std::shared_ptr<Job>;
  void step(const JobPtr& job);
  void look(Job& job, Record& record);

  Env& env_;
  ObjectIndex& index_;
  SsdLane& lane_;
  Recency& recency_;
  Spiller& spiller_;
  const Models& models_;
  Calls& calls_;
  Leaving leaving_;
};

}  // namespace kv
