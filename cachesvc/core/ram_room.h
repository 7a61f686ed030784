// RamRoom: room in RAM for a request: drop clean leaves, wait a bounded time for spills and leases,
// drop dirty leaves (counted), then busy. A waiter holds nothing yet. Waiters of one share
// (core/shares.h) are served in order, and several shares take turns; a waiter whose account
// (staging, replies) is full is passed over.
//
// The index never exceeds its share of RAM: a new object displaces the least recently used ones
// from both tiers (a file left behind would be one that no erase finds). Evictions go in steps, and
// large memory is freed on a worker (core/leaving.h). Loop thread only.
#pragma once

#include <list>
#include <vector>

#include "cachesvc/core/ages.h"
#include "cachesvc/core/call.h"
#include "cachesvc/core/leaving.h"
#include "cachesvc/core/room_request.h"
#include "cachesvc/core/spiller.h"
#include "cachesvc/core/transit.h"

namespace kv {

class RamRoom {
 public:
  RamRoom(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, Recency& recency,
          Spiller& spiller);
  RamRoom(const RamRoom&) = delete;  // timers point here
  RamRoom& operator=(const RamRoom&) = delete;

  /// Waits for room; `done` gets all charges, or: resource_exhausted (it can never fit), busy,
  /// unavailable (`call`, if there is one, has ended: it waits for nothing else meanwhile).
  void with_room(Room room, Deadline deadline, RoomDone done,
                 const std::shared_ptr<CallBase>& call = nullptr);
  /// Charges from free RAM; nothing is evicted. Null: too little is free.
  std::shared_ptr<RoomCharges> try_room(const Room& room);
  /// Like try_room, after evicting what may go now; dirty leaves only where no spill can save them.
  std::shared_ptr<RoomCharges> room_now(const Room& room);
  /// True if a request waits.
  bool wanted() const { return !waiters_.empty(); }
  /// Serves waiters while there is room; called when bytes or pins were given back.
  void pump();
  void close() { waiters_.clear(); }

  /// Returns: resource_exhausted naming what it needs and the limit, if it can never fit.
  Status can_never_fit(const Room& room) const;
  /// Bytes of RAM that a namespace's request may have; no limit: UINT64_MAX.
  uint64_t share_of(ShareId share) const;
  /// The parts that clients' bytes in transit may have.
  const Transit& transit() const { return transit_; }
  uint64_t index_limit() const;
  /// True if `bytes` more exceed the index's share.
  bool index_full(uint64_t bytes) const;
  /// Deletes files of objects that a start found over the share, behind the SSD's other work.
  void drop_files(std::vector<ObjectName> names);

  void check_invariants() const;

 private:
  static constexpr uint64_t kNoLimit = UINT64_MAX;
  struct Waiter {
    Room room;
    Deadline deadline;
    RoomDone done;
    std::unique_ptr<Timer> timer;
    uint64_t turn = 0;
    std::weak_ptr<CallBase> call;
    bool left = false;  ///< its call has ended
    Clock::time_point since = Clock::now();
  };
  using Waiters = std::list<Waiter>;
  /// Work left after a step of making room.
  enum class Next : uint8_t {
    nothing,  ///< there is room, or nothing may go
    evict,    ///< more may go, in another handler
    freed,    ///< enough has gone, or all that may: a worker is freeing it
  };
  struct Step {
    std::shared_ptr<RoomCharges> charges;
    Next next = Next::nothing;
  };
  Step make_room(const Room& room, bool dirty_too, uint64_t most_bytes);
  Step evict_for(const Room& room, bool dirty_too, uint64_t most_bytes, size_t most_objects);
  Step step_of(const Room& room, uint64_t most_bytes);
  Waiters::iterator queue(const Room& room, RoomDone done);
  Record* index_victim(bool dirty_too);
  /// False if nothing may go, or `most_objects` have gone; `more_may_go` tells which.
  bool make_index_room(uint64_t bytes, bool dirty_too, size_t most_objects, bool& more_may_go);
  void evict(Record& record, ShareId by, bool free_here);
  void tell_index_full(size_t objects) const;
  Waiter take(Waiters::iterator waiter);
  void timed_out(Waiters::iterator waiter);
  Status busy(const Room& room) const;

  Env& env_;
  ObjectIndex& index_;
  Records& records_;
  SsdLane& lane_;
  Recency& recency_;
  Spiller& spiller_;
  Leaving leaving_;
  Transit transit_;
  Waiters waiters_;
  std::vector<uint64_t> last_turn_;  // by ShareId: turn of its last waiter
  uint64_t turn_ = 0;                // turn of the waiter served last
  bool pumping_ = false;
};

}  // namespace kv
