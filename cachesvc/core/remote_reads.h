// RemoteReads: finds in the shared tier what local tiers lack of a query, and brings it into RAM,
// from where it goes to the SSD as what a client stores. REMOTE.md, "What is read".
//
//   find:  ids of the query's blocks (worker) ──> one question ──> plan with what is there
//   bring: room for all of it ──> reads, some at a time, prefix first ──> verified (the tier's
//          thread), unpacked and checked against the model (worker) ──> in the index, root first
//
// One read per object, however many calls wait for it. Whatever fails is a shorter hit. A tier that
// does not answer is not asked again for a while, and then without a call that waits. What an erase
// may have taken meanwhile is dropped. Loop thread only.
#pragma once

#include <list>
#include <map>

#include "cachesvc/core/ages.h"
#include "cachesvc/core/eraser.h"
#include "cachesvc/core/plan.h"
#include "cachesvc/core/ram_room.h"
#include "cachesvc/core/remote_writes.h"
#include "cachesvc/remote/breaker.h"

namespace kv {

/// A query of a call, and how much of it the call wants.
struct RemoteWant {
  std::shared_ptr<RealmState> realm;
  std::shared_ptr<const Query> query;
  RestorableQuery limits;  ///< as its plan's
  Deadline deadline;
  std::shared_ptr<CallBase> call;  ///< who waits; may be null
};

/// More of the query than local tiers have.
struct RemoteFinding {
  RemoteWant want;
  RestorePlan plan;     ///< served, once it is here
  uint32_t common = 0;  ///< with anything stored
  struct Piece {
    RemoteFound found;
    uint64_t stored_bytes = 0;  ///< in RAM, about
  };
  std::vector<Piece> pieces;  ///< to be read, parents first
  uint64_t erases = 0;        ///< begun before the question
};

class RemoteReads {
 public:
  using FindingPtr = std::shared_ptr<RemoteFinding>;

  RemoteReads(Env& env, ObjectIndex& index, Records& records, RemoteWrites& writes,
              Spiller& spiller, RamRoom& room, const Eraser& eraser)
      : env_(env),
        index_(index),
        records_(records),
        writes_(writes),
        spiller_(spiller),
        room_(room),
        eraser_(eraser) {}
  RemoteReads(const RemoteReads&) = delete;  // handlers point here
  RemoteReads& operator=(const RemoteReads&) = delete;

  /// True if the tier is on and answers, and may have enough more than the `tokens` that local
  /// tiers restore, or if more of it is being brought. Begins a probe of a tier that did not
  /// answer, if it is time.
  bool may_help(const RemoteWant& want, uint32_t tokens);
  /// `done` gets what it has more than `tokens`; null: nothing.
  void find(RemoteWant want, uint32_t tokens, std::function<void(FindingPtr)> done);
  /// Brings as much of it as can be, by the deadline.
  void bring(const FindingPtr& finding, std::function<void()> done);

  struct Counts {
    uint64_t questions = 0, probes = 0;
    uint64_t found = 0;      ///< questions that found more than was here
    uint64_t unreached = 0;  ///< questions without an answer
    uint64_t objects = 0, bytes = 0, joins = 0;
    uint64_t failures = 0;  ///< objects found that did not come
  };
  const Counts& counts() const { return counts_; }
  bool on() const { return static_cast<bool>(writes_); }
  /// The tier did not answer, and is not asked.
  bool silent() const { return breaker_.state() != BreakerState::closed; }
  void close() {
    reads_.clear();
    bringing_.clear();
  }

 private:
  struct Finding;
  struct Bringing;
  using BringingPtr = std::shared_ptr<Bringing>;
  void probe();
  bool being_brought(const RemoteWant& want, uint32_t tokens) const;
  void list(const std::shared_ptr<Finding>& finding);
  void ask(const std::shared_ptr<Finding>& finding, const std::vector<RemoteListedName>& listed);
  void answered(Finding& finding, const std::vector<RemoteFound>& found);
  FindingPtr judge(Finding& finding, const std::vector<RemoteFound>& found);
  void fit(RemoteFinding& finding) const;
  void read_some(const BringingPtr& bringing);
  void read(const BringingPtr& bringing, size_t at);
  void unpack(const BringingPtr& bringing, size_t at, FileImage image);
  void came(const BringingPtr& bringing, size_t at, Result<RamObject> object);
  void place_some(Bringing& bringing);
  bool place(Bringing& bringing, size_t at);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  RemoteWrites& writes_;
  Spiller& spiller_;
  RamRoom& room_;
  const Eraser& eraser_;
  Breaker breaker_;
  RemoteName probed_{};  // the name that a probe asks for
  std::map<ObjectName, std::vector<std::function<void()>>> reads_;  // under way: who waits
  std::list<FindingPtr> bringing_;                                  // under way
  Counts counts_;
};

}  // namespace kv
