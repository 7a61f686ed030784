// Holds: prefixes promised to clients. A hold pins what a lookup found, in both tiers, until its
// time is over, and keeps the query, so that tokens travel once. It belongs to its namespace: any
// connection may fetch by its number, renew or release it, and it outlives them.
//
//   hold ──plan──> clipped to what may be pinned ──> kept ──renew──┐
//                                                     │  ▲────────┘
//                                                     └── release, or its time ──> gone
//
// A retain is a hold that pins nothing: its objects only go after all others of their share. It
// lasts longer, at most kMostRetainTime, and is named, counted and bounded like one.
//
// Bounds: max_holds of a namespace, max_hold_time, and hold_fraction of its share of RAM or of the
// SSD, whichever is smaller, for what all of its holds pin and for their own queries, which are
// kept as far as they are held; an object that several of them pin counts once. Other shares thus
// stay available. An erase takes what is held; a fetch then serves what is left. Loop thread only.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/pins.h"
#include "cachesvc/core/plan.h"
#include "cachesvc/core/ram_room.h"
#include "index/sharded_map.h"

namespace kv {

inline constexpr Milliseconds kMostRetainTime = std::chrono::hours(24);

class Holds {
 public:
  Holds(Env& env, ObjectIndex& index, RamRoom& room, Calls& calls);
  Holds(const Holds&) = delete;  // the timer points here
  Holds& operator=(const Holds&) = delete;

  void hold(uint64_t session, HoldRequest request, CallTerms terms,
            std::function<void(Result<HoldReply>)> done);
  /// As hold, but what was found only goes last.
  void retain(uint64_t session, RetainRequest request, CallTerms terms,
              std::function<void(Result<RetainReply>)> done);
  /// Extends the hold to at least `time` from now, clipped to max_hold_time. Returns: not_found.
  void renew(uint64_t session, uint64_t number, Milliseconds time, CallTerms terms,
             std::function<void(Result<Milliseconds>)> done);
  /// Returns: not_found.
  void release(uint64_t session, uint64_t number, CallTerms terms,
               std::function<void(Status)> done);

  struct Held {
    std::shared_ptr<const Query> query;
    uint32_t tokens = UINT32_MAX;  ///< the most that may be served: what was promised
  };
  /// The query and length of a call that names a hold (0: none) in place of a query. Returns:
  /// not_found, invalid_argument (a query beside it, another model, lengths), profile_changed.
  Result<Held> asked(const ModelState& model, uint64_t number, Query query);

  /// True if the hold pins the record.
  bool holds(uint64_t number, const Record& record) const;

  size_t size() const { return holds_.size() - retains_; }
  size_t retains() const { return retains_; }
  size_t size_of(const std::string& ns) const;
  template <typename Look>
  void each_namespace(Look look) const {  ///< with the number of its holds
    for (const auto& [ns, number] : counts_) look(ns, number);
  }
  uint64_t bytes() const;  ///< pinned by all holds, and their own
  void close();
  /// Ends the process if the pinned objects are not the sum of the holds.
  void check_invariants() const;

 private:
  struct Hold {
    std::string ns;
    std::shared_ptr<RealmState> realm;
    Held held;
    std::vector<uint64_t> objects;  ///< Record::serial, sorted
    Pins pins;
    std::vector<PinnedName> retained;  ///< of a retain: its objects, which nothing pins
    bool retains = false;
    std::shared_ptr<RoomCharges> room;  ///< pays for the query and the lists
    Clock::time_point until;
    uint64_t own_bytes() const { return room->session.bytes(); }
  };
  struct Counted {
    uint64_t bytes = 0;
    uint32_t holds = 0;
  };
  struct Share {
    uint64_t limit = 0, bytes = 0;
    ShardedMap<uint64_t, Counted> objects;  ///< by Record::serial
  };

  Share& share_of(const RealmState& realm);
  Result<Hit> plan(RealmState& realm, const Query& query, HoldReply& reply, bool& less);
  enum class Kind : uint8_t { pins, retains };
  /// `less`: whether its time is shorter than asked for, or its prefix than what was found.
  Result<HoldReply> keep(const ModelState& model, Query query, Milliseconds asked, Kind kind,
                         bool& less);
  void let_go(std::vector<PinnedName> names);
  Milliseconds clipped(Milliseconds time, Kind kind) const;
  Hold* find(const std::string& ns, uint64_t number);
  Hold* find(uint64_t session, uint64_t number);
  void end(uint64_t number);
  void end_due();
  void arm();

  Env& env_;
  ObjectIndex& index_;
  RamRoom& room_;
  Calls& calls_;
  std::vector<Share> shares_;  // by ShareId
  std::map<uint64_t, Hold> holds_;
  std::map<std::string, uint32_t> counts_;  // by namespace
  std::set<std::pair<Clock::time_point, uint64_t>> by_end_;
  size_t retains_ = 0;
  uint64_t next_;  // odd; begins at random: no number of an earlier start means anything
  Timer timer_;
};

}  // namespace kv
