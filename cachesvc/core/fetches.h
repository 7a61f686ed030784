// Fetches: lookup, prefetch, fetch. A fetch plans, brings into RAM what is missing, and plans anew,
// until all of its hit is in RAM; then it leases, decoded or cut to a selection if the client wants
// it so.
//
//   plan ──more in the shared tier──> brought into RAM (RemoteReads) ──> plan
//   plan ──all in RAM──> lease (checks that are due run beside) ──(MadeReplies)──> answered
//    ▲ │
//    │ └──missing──> read (HitReads) ──┐
//    └──────────────────────────────────┘
//
// A hit that does not fit is served shorter, with the reason: less patience at each failure to get
// room (RunningFetch::Patience). Loop thread only.
#pragma once

#include "cachesvc/core/ages.h"
#include "cachesvc/core/fetch_notes.h"
#include "cachesvc/core/hit_reads.h"
#include "cachesvc/core/holds.h"
#include "cachesvc/core/made_replies.h"
#include "cachesvc/core/open_questions.h"
#include "cachesvc/core/promoter.h"
#include "cachesvc/core/ram_room.h"
#include "cachesvc/core/remote_reads.h"
#include "cachesvc/core/running_fetch.h"

namespace kv {

class Fetches {
 public:
  Fetches(Env& env, ObjectIndex& index, RamChecks& checks, RamRoom& room, Promoter& promoter,
          Calls& calls, Holds& holds, const Misses& misses, RequestRing& ring, RemoteReads& remote)
      : env_(env),
        index_(index),
        checks_(checks),
        room_(room),
        promoter_(promoter),
        calls_(calls),
        holds_(holds),
        remote_(remote),
        reads_(env, index, room, promoter),
        replies_(env, room),
        notes_(env, misses, ring),
        open_(env, [this](const OpenQuestion& q) { notes_.missed(q.ns, q.model, q.tokens); }) {}
  Fetches(const Fetches&) = delete;  // calls point here
  Fetches& operator=(const Fetches&) = delete;

  /// Reports what a fetch would serve.
  void lookup(uint64_t session, QueryRequest request, CallTerms terms,
              std::function<void(Result<LookupReply>)> done);
  /// Reports likewise, and begins the reads in the background.
  void prefetch(uint64_t session, PrefetchRequest request, CallTerms terms,
                std::function<void(Result<LookupReply>)> done);
  void fetch(uint64_t session, FetchRequest request, CallTerms terms,
             std::function<void(Result<FetchReply>)> done);
  void close() { open_.close(); }
  void check_invariants() const {
    replies_.check_invariants();
    open_.check_invariants();
  }

 private:
  using FetchPtr = RunningFetchPtr;
  /// A planned hit.
  struct Planned {
    Hit hit;
    Pins pins;  ///< the pins of all that it uses
  };
  using PlannedPtr = std::shared_ptr<Planned>;

  using LookupCall = std::shared_ptr<Call<Result<LookupReply>>>;
  struct Looking;
  void answer(const Looking& looking, const Hit& hit, const RemoteFinding* more);
  void prefetch_local(const FetchPtr& background, const std::function<void()>& answer, bool wait);
  bool ask_remote(const FetchPtr& f, const Hit& hit);
  void bring(const FetchPtr& f, const RemoteReads::FindingPtr& more, std::function<void()> then);
  void answer_pending(const FetchPtr& f, const RemoteReads::FindingPtr& finding);
  void begin(RunningFetch& f);
  void note_pending(RunningFetch& f, const Hit& hit, const FetchReply& reply);
  void step(const FetchPtr& f);
  Result<Hit> plan(RunningFetch& f);
  FetchCost cost_of(const RunningFetch& f, const Hit& hit) const;
  uint64_t room_beside(const Hit& hit, ShareId share, uint64_t wanted);
  void keep_warm(const RunningFetch& f, const Hit& hit);
  void answer_pending(const FetchPtr& f, Planned& planned);
  Planned pinned(Hit hit);
  template <typename Then>
  void next(const FetchPtr& f, const PlannedPtr& planned, Then then);
  void use(const FetchPtr& f, Planned& planned);
  void check(const FetchPtr& f, Planned& planned);
  void promote(const FetchPtr& f, Planned planned);
  void reply(const FetchPtr& f, Planned& planned);
  void finish(RunningFetch& f, FetchReply reply);

  Env& env_;
  ObjectIndex& index_;
  RamChecks& checks_;
  RamRoom& room_;
  Promoter& promoter_;
  Calls& calls_;
  Holds& holds_;
  RemoteReads& remote_;
  HitReads reads_;
  MadeReplies replies_;
  FetchNotes notes_;
  OpenQuestions open_;
};

}  // namespace kv
