// Commits: commits that wait for their turn. Row copies (core/row_copies.h) are put first, then the
// commit becomes visible (Publications).
//
//   copying ──its puts have ended──> no erase of its namespace ──> Publications ──> Levels
//
// A commit waits for its turn in a list, and looks again with progress(). Loop thread only.
#pragma once

#include <list>

#include "cachesvc/core/publications.h"
#include "cachesvc/core/puts.h"

namespace kv {

class Commits {
 public:
  Commits(Env& env, ObjectIndex& index, Calls& calls, Eraser& eraser, Reservations& reservations,
          Puts& puts, Publications& publications)
      : env_(env),
        index_(index),
        calls_(calls),
        eraser_(eraser),
        reservations_(reservations),
        puts_(puts),
        publications_(publications) {}
  Commits(const Commits&) = delete;  // calls point here
  Commits& operator=(const Commits&) = delete;

  void commit(uint64_t session, uint64_t id, Durability wait_for, CallTerms terms,
              std::function<void(Result<CommitReply>)> done);
  /// Begins commits whose turn has come.
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
  void copy_rows(Reservation& r, Deadline deadline);
  void publish(const Waiting& commit);

  Env& env_;
  ObjectIndex& index_;
  Calls& calls_;
  Eraser& eraser_;
  Reservations& reservations_;
  Puts& puts_;
  Publications& publications_;
  std::list<Waiting> waiting_;
};

}  // namespace kv
