// Eraser: removes the objects of an erase from the index in steps, then their files, a few at a
// time behind the SSD's other work, and in the shared tier. Others are served between the steps,
// but commits and erases of the namespace wait: nothing is stored on an object about to go, or
// reported gone before its file is. An erase waits in turn for the namespace's publications, and
// none begins meanwhile.
//
//   waiting ──all files of the start are known, no other erase or publication of the namespace──>
//   removing (steps)
//   ──all have left the index──> unlinking ──files, traces, records gone──> answered
//
// Loop thread only.
#pragma once

#include <list>
#include <set>
#include <string>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/erase_targets.h"
#include "cachesvc/core/reconciler.h"
#include "cachesvc/core/remote_writes.h"

namespace kv {

class Eraser {
 public:
  Eraser(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, const Found& found,
         Models& models, ModelRecords& model_records, Reconciler& reconciler, Calls& calls,
         RemoteWrites& remote)
      : env_(env),
        index_(index),
        records_(records),
        lane_(lane),
        found_(found),
        models_(models),
        model_records_(model_records),
        reconciler_(reconciler),
        calls_(calls),
        remote_(remote) {}
  Eraser(const Eraser&) = delete;  // jobs point here
  Eraser& operator=(const Eraser&) = delete;

  /// Erases every entry that begins with the query; model 0: everything of the namespace.
  void erase(uint64_t session, uint32_t model, Query query, CallTerms terms,
             std::function<void(Result<uint64_t>)> done);
  /// Erases the entry that ends with the query's last token.
  void erase_entry(uint64_t session, QueryRequest request, CallTerms terms,
                   std::function<void(Result<uint64_t>)> done);
  /// Erases objects of a namespace whose time is over, in turn with its other erases. Nobody is
  /// answered, and files that a start has still to read are not waited for.
  void expire(const std::string& ns, std::vector<PinnedName> names);
  /// True if no erase of the namespace is between two steps, or waits for publications alone.
  bool may_publish(const std::string& ns) const;
  /// Notes that something of the namespace is becoming visible (core/publications.h).
  void publication_begins(const std::string& ns) { publishing_.insert(ns); }
  void publication_ends(const std::string& ns);
  /// True if no erase and no publication is between two steps.
  bool resting() const { return removing_.empty() && publishing_.empty(); }
  /// Begins erases whose wait is over.
  void go_on();
  /// Ends with the core: files of erases that have begun go, behind all other work of the SSD.
  void close();
  /// Ends the process if two of one namespace are at work at once.
  void check_invariants() const;

 private:
  using CallPtr = std::shared_ptr<Call<Result<uint64_t>>>;
  /// The objects that an erase removes.
  struct Scope {
    std::unique_ptr<EraseTargets> targets;
    bool whole = false;         ///< nothing is left of the model or namespace
    bool of_namespace = false;  ///< the namespace's name goes too
  };
  using Find = std::function<Result<Scope>()>;  // called when the erase's turn has come
  struct Waiting {
    std::string ns;
    Find find;
    CallPtr call;  ///< null: nobody waits for it
    bool over() const { return call && call->finished(); }
  };
  struct Job {
    std::string ns;
    CallPtr call;
    std::unique_ptr<EraseTargets> targets;
    uint64_t removed = 0;  // objects
    bool whole = false, of_namespace = false;
    std::vector<RamObject> freed;    // freed on a worker, at the end
    std::vector<RemoteName> shared;  // names in the shared tier
    uint64_t unnamed = 0;            // more than kMostShared
    size_t left = 0;                 // jobs that are awaited
    Status first_error;
  };
  using JobPtr = std::shared_ptr<Job>;

  std::string ns_of(uint64_t session) const;
  void queue(Waiting erase);
  bool removing(const std::string& ns) const;
  bool may_begin(const Waiting& erase) const;
  void begin(Waiting erase);
  void step(const JobPtr& job);
  std::vector<ObjectName> remove_next(Job& job, size_t most, bool& writing);
  void all_removed(const JobPtr& job);
  void wipe_traces(const JobPtr& job);
  void erase_shared(const JobPtr& job);
  void ended(const JobPtr& job, Status status);
  Status verdict(const Job& job);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  const Found& found_;
  Models& models_;
  ModelRecords& model_records_;
  Reconciler& reconciler_;
  Calls& calls_;
  RemoteWrites& remote_;
  std::list<Waiting> waiting_;
  std::list<JobPtr> removing_;
  std::multiset<std::string> publishing_;  ///< namespaces
};

}  // namespace kv
