// Commits: coverage, and visibility in one step; what follows is the wait for a level
// (core/levels.h).
//
//   adopting ──its puts have ended──> no erase of its namespace ──> published ──> Levels
//
// A commit waits for its turn in a list, and looks again with progress(). Loop thread only.
#pragma once

#include <list>

#include "cachesvc/core/eraser.h"
#include "cachesvc/core/levels.h"
#include "cachesvc/core/puts.h"

namespace kv {

class Commits {
 public:
  Commits(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, Models& models,
          Spiller& spiller, Calls& calls, Levels& levels, Eraser& eraser,
          Reservations& reservations, Puts& puts)
      : env_(env),
        index_(index),
        records_(records),
        lane_(lane),
        models_(models),
        spiller_(spiller),
        calls_(calls),
        levels_(levels),
        eraser_(eraser),
        reservations_(reservations),
        puts_(puts) {}
  Commits(const Commits&) = delete;  // calls point here
  Commits& operator=(const Commits&) = delete;

  void commit(uint64_t session, uint64_t id, Durability wait_for, Deadline deadline,
              std::function<void(Result<CommitReply>)> done);
  /// Those whose turn has come.
  void go_on();
  void close() { waiting_.clear(); }

 private:
  using CallPtr = std::shared_ptr<Call<Result<CommitReply>>>;
  struct Waiting {
    uint64_t session, id;
    Durability wait_for;
    CallPtr call;
  };
  bool may_publish(const Waiting& commit);
  void adopt(Reservation& r, Deadline deadline);
  void publish(const Waiting& commit);
  uint32_t covered_tokens(Reservation& r, CommitReply& reply, Status& refused);
  void make_visible(Reservation& r, uint32_t tokens, CommitReply& reply);
  void supersede_tails(Reservation& r, uint32_t tokens);
  void ask_for_spill(const std::vector<Record*>& path, ModelState& model, Durability wait_for);

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  Models& models_;
  Spiller& spiller_;
  Calls& calls_;
  Levels& levels_;
  Eraser& eraser_;
  Reservations& reservations_;
  Puts& puts_;
  std::list<Waiting> waiting_;
};

}  // namespace kv
