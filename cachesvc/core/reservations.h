// Reservations: stores between their reserve and their commit. A reservation pins what exists,
// keeps the RAM that its missing objects will need, and ends with its commit, an abort, its session
// or its time: reservation_timeout after the last put that brought something, and ten times that in
// all. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <set>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/needs.h"
#include "cachesvc/core/pins.h"
#include "cachesvc/core/plan.h"
#include "cachesvc/core/ram_room.h"

namespace kv {

struct Reservation {
  struct Finished {
    RamObject object;
    Charge index;
  };
  /// Rows, or a carry or state, that a stored supplement held at the reserve.
  struct Source {
    ObjectName name;
    HoldingKind kind = HoldingKind::rows;
    uint16_t group = 0;
    RowRange rows;            ///< those that depend on tokens of the query only
    bool superseded = false;  ///< of a tail in `tails`
  };
  uint64_t id = 0;
  uint64_t session = 0;
  std::shared_ptr<ModelState> model;
  std::shared_ptr<RealmState> realm;
  Query query;
  std::vector<Id> blocks;  ///< ids of the complete blocks
  Id tail;                 ///< zero if the length is a multiple of block_tokens
  EntryWords words;        ///< of the client on the entry
  EndRules ends;           ///< ends that are welcome beside its own
  /// Objects of the sequence, as the puts bring them.
  struct {
    std::set<ObjectName> existed;   ///< there at reserve or at a put, so pinned
    std::vector<Need> required;     ///< needs that the client can't leave out
    std::vector<ObjectName> given;  ///< put by the client, with rows that were there already
    std::map<ObjectName, Finished> finished;  ///< encoded, and invisible
    std::set<ObjectName> foreign;             ///< put, but another commit's bytes were there first
    std::set<ObjectName> encoding;            ///< puts under way
    std::vector<Source> sources;              ///< supplements that it has or may copy from, pinned
    std::vector<ObjectName> tails;            ///< shorter tails, whose tokens it holds all
  } objects;
  struct {
    Charge stored, index;  ///< for its missing objects
    Charge query;          ///< for `query` and `blocks`
  } charges;
  Pins pins;
  Clock::time_point begun = Clock::now();
  Clock::time_point expires, last;  ///< its end, and the latest possible one
  std::unique_ptr<Timer> timer;

  uint32_t tokens() const { return static_cast<uint32_t>(query.tokens.size()); }
  /// The id of the block, or of the tail behind them.
  const Id& id_of(size_t block) const { return block < blocks.size() ? blocks[block] : tail; }
  ObjectName tail_name() const { return {ObjectKind::tail, tail, 0, 0, 0}; }
  ObjectName block_name(size_t block) const { return {ObjectKind::block, blocks[block], 0, 0, 0}; }
};

class Reservations {
 public:
  Reservations(Env& env, ObjectIndex& index, RamRoom& room, Calls& calls)
      : env_(env), index_(index), room_(room), calls_(calls) {}
  Reservations(const Reservations&) = delete;  // timers point here
  Reservations& operator=(const Reservations&) = delete;

  void reserve(uint64_t session, ReserveRequest request, CallTerms terms,
               std::function<void(Result<ReserveReply>)> done);
  void abort(uint64_t session, uint64_t id, CallTerms terms, std::function<void(Status)> done);

  Reservation* find(uint64_t session, uint64_t id);
  /// Restarts the timeout, as a put has brought something.
  void prolong(Reservation& r);
  /// Ends it; `then` follows on the loop when a worker has freed its memory.
  void end(uint64_t id, std::function<void()> then = {});
  /// Hands it to the caller: no timeout and no session ends it any more. Precondition: it is there.
  Reservation take(uint64_t id);
  /// Ends a reservation that was taken.
  void free(Reservation reservation, std::function<void()> then = {});
  void end_session(uint64_t session);
  void close() { reservations_.clear(); }
  size_t size() const { return reservations_.size(); }
  size_t size_of(const std::string& ns) const;
  template <typename Look>
  void each_namespace(Look look) const {  ///< once for each reservation
    for (const auto& [id, reservation] : reservations_) look(reservation.realm->realm.ns);
  }
  /// Checks that objects reported as there are pinned until the commit.
  void check_invariants() const;

 private:
  Status check(const ReserveRequest& request, const ModelState& model);
  using CallPtr = std::shared_ptr<Call<Result<ReserveReply>>>;
  void reserve_hashed(Reservation reservation, const CallPtr& call);
  void ask_for_room(const std::shared_ptr<Reservation>& r,
                    const std::shared_ptr<std::vector<Need>>& needs, const CallPtr& call);
  std::vector<Need> plan(Reservation& r);
  Room room_of(const Reservation& r, const std::vector<Need>& needs) const;
  Status fits(const Reservation& r, const Room& room) const;
  uint64_t keep(Reservation r);
  void expired(uint64_t id);

  Env& env_;
  ObjectIndex& index_;
  RamRoom& room_;
  Calls& calls_;
  std::map<uint64_t, Reservation> reservations_;
  uint64_t next_id_ = 1;
};

}  // namespace kv
