// Publications: make the objects of commits visible, and hand their paths to Levels.
//
//   counting ──> naming ──> covering     what it lost is known, all blocks are there, all rows are
//      └───────────┴───────────┴──> ordering     or something has gone: with fewer tokens
//                  └───────────┴──> refused      the client has left something out
//   ordering ──> adding ──> linking      all its objects have their place, root first; tails
//                                        superseded, its end marked
//   linking ──> keeping ──> planning     what the ends that the client named need goes no sooner
//                                        than all else, one end at a time
//   planning ──> joining ──> touching    its path is known (planned again only if it has fewer
//                                        tokens), and is the newest
//   touching ──> spilling ──> freeing ──> ending ──> Levels
//
// A long entry takes several steps of the loop; calls between them find a prefix of it. A
// publication cannot be stopped: it owns its reservation with the pins on existing objects, and
// erases of its namespace wait for its end (Eraser). Loop thread only.
#pragma once

#include "cachesvc/core/ages.h"
#include "cachesvc/core/coverage.h"
#include "cachesvc/core/ends.h"
#include "cachesvc/core/entry_record.h"
#include "cachesvc/core/eraser.h"
#include "cachesvc/core/expiries.h"
#include "cachesvc/core/levels.h"
#include "cachesvc/core/reservations.h"

namespace kv {

class Publications {
 public:
  using CallPtr = std::shared_ptr<Call<Result<CommitReply>>>;
  /// Objects added to the index in one step.
  static constexpr size_t kObjectsPerStep = 32;

  Publications(Env& env, ObjectIndex& index, Ends& ends, Records& records, SsdLane& lane,
               Expiries& expiries, ModelRecords& model_records, Spiller& spiller, Levels& levels,
               Eraser& eraser, Reservations& reservations)
      : env_(env),
        index_(index),
        ends_(ends),
        records_(records),
        lane_(lane),
        expiries_(expiries),
        model_records_(model_records),
        spiller_(spiller),
        levels_(levels),
        eraser_(eraser),
        reservations_(reservations) {}
  Publications(const Publications&) = delete;  // steps point here
  Publications& operator=(const Publications&) = delete;

  /// Precondition: no object of it is being encoded, and the eraser lets its namespace publish.
  /// Refused if the client has left a required object out.
  void publish(Reservation reservation, Durability wait_for, CallPtr call);

 private:
  enum class State : uint8_t {
    counting,
    naming,
    covering,
    ordering,
    adding,
    linking,
    keeping,
    planning,
    joining,
    touching,
    spilling,
    freeing,
    ending
  };
  static bool may_move(State from, State to);
  struct Publication;
  using Ptr = std::shared_ptr<Publication>;

  void step(const Ptr& p);
  bool cover(Publication& p, Gap gap, State next);
  void add_some(Publication& p);
  void link(Publication& p);
  void keep_words(Publication& p, NodeId end);
  void keep_end(Publication& p);
  void join(Publication& p);
  void touch(Publication& p);
  void supersede_tails(const Reservation& r, uint32_t tokens);
  void ask_for_spill(Publication& p);
  void free(Publication& p);
  void end(Publication& p);

  Env& env_;
  ObjectIndex& index_;
  Ends& ends_;
  Records& records_;
  SsdLane& lane_;
  Expiries& expiries_;
  ModelRecords& model_records_;
  Spiller& spiller_;
  Levels& levels_;
  Eraser& eraser_;
  Reservations& reservations_;
};

}  // namespace kv
