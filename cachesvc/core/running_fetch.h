// RunningFetch: one fetch under way, the RAM that its hit takes, and a shorter length that fits.
// Values and pure functions; loop thread only.
#pragma once

#include <set>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/plan.h"
#include "cachesvc/core/room_request.h"

namespace kv {

/// Objects of a fetch that one handler works on: a long prompt has hundreds.
inline constexpr size_t kObjectsAtATime = 32;

struct RunningFetch {
  /// Reaction to missing room; lose_patience() alone changes it, downwards.
  enum class Patience : uint8_t {
    wait,      ///< waits for room for the whole hit
    now,       ///< takes what there is room for now
    ram_only,  ///< takes what RAM holds: no room for a promotion
  };
  std::shared_ptr<Call<Result<FetchReply>>> call;  ///< null: nobody waits for the rest
  std::function<void()> loaded;        ///< called in place of the next step; null: step() goes on
  std::shared_ptr<CallBase> prefetch;  ///< the call that waits for `loaded`, if one does
  std::shared_ptr<RealmState> realm;
  std::shared_ptr<const Query> query;
  FetchRequest request;  ///< without its query
  Deadline deadline;
  Patience patience = Patience::wait;
  uint32_t max_tokens = UINT32_MAX;         ///< limit: the hold's length, and what RAM has room for
  bool checked = false;                     ///< checks that were due have begun
  bool asked_remote = false;                ///< the shared tier was asked, or had no part
  std::shared_ptr<RoomCharges> reply_room;  ///< for made objects, while the fetch plans again
  uint64_t window_bytes = 0;  ///< room for file and unpacked bytes while the hit is read
  std::string limit_reason;
  std::set<ObjectName> promoted;  ///< objects that were not in RAM at first
  std::set<ObjectName> brought;   ///< objects that came from the shared tier
  uint64_t ssd_tokens = 0;        ///< the hit's tokens in promoted blocks and tails
  uint64_t remote_tokens = 0;     ///< the hit's tokens in brought blocks and tails
  uint64_t saved_ms = 0;          ///< of prefill, as far as clients told
  uint64_t ssd_before = 0;        ///< tokens of the hit that the SSD had when it was first asked
  uint64_t remote_before = 0;     ///< likewise the shared tier
  bool miss_counted = false;      ///< a lookup of the same found nothing, and was counted
  Clock::time_point begun = Clock::now();
  uint32_t rounds = 0;
  RequestRecord record;            ///< for RequestRing; filled when the hit is known
  Clock::time_point step_began{};  ///< of the wait, the reads or the making under way

  /// The reply's planes are made for it: decoded, or cut to some heads.
  bool copies() const {
    return request.form != FetchForm::stored || !request.selection.heads.all();
  }
  /// Each object needs a job on a worker before the reply.
  bool needs_work() const {
    const Selection& s = request.selection;
    return copies() || (!request.whole_objects && (!s.layers.all() || !s.parts.all()));
  }
  uint64_t reply_room_bytes() const { return reply_room ? reply_room->reply.bytes() : 0; }
  /// It asks again itself: what is not in RAM is answered `pending`.
  bool polls() const { return !request.wait; }
  /// Adds the time since the step began to one of the record's.
  void step_ended(uint32_t RequestRecord::*time) {
    const auto took = Clock::now() - step_began;
    record.*time +=
        static_cast<uint32_t>(std::chrono::duration_cast<std::chrono::microseconds>(took).count());
  }
  std::shared_ptr<CallBase> asker() const { return call ? call : prefetch; }
  /// Nothing more is to be read: a fetch has ended, or a prefetch was cancelled.
  bool unwanted() const { return call ? call->finished() : prefetch && prefetch->cancelled; }
  void lose_patience() {
    patience = patience == Patience::wait ? Patience::now : Patience::ram_only;
  }
  /// Lowers the aim from the whole path to what there is room for now, in the end to what RAM
  /// holds.
  void no_room(const Status& status) {
    limit_reason = status.message();
    lose_patience();
  }
};
using RunningFetchPtr = std::shared_ptr<RunningFetch>;

/// RAM that a hit takes. Reads may go one at a time, so file and unpacked bytes count for the
/// largest object only. Objects in RAM count too (`all`, `largest`): the limit stays while the hit
/// is read.
struct FetchCost {
  uint64_t all = 0;      ///< every object as it lies in RAM
  uint64_t missing = 0;  ///< objects neither in RAM nor being read
  uint64_t reading = 0;  ///< file and unpacked bytes of the missing objects
  uint64_t largest = 0;  ///< file and unpacked bytes of the largest object
  uint64_t decoded = 0;  ///< every object as the client wants it; 0: as it lies in RAM
  bool pending = false;  ///< some object is not in RAM, and the call polls: nothing is decoded yet
  /// Bytes beside the objects: reads need them first, decoding afterwards.
  uint64_t beside() const { return std::max(missing > 0 ? largest : 0, decoded); }
  /// Bytes of them that must be free now.
  uint64_t beside_now() const { return pending ? (missing > 0 ? largest : 0) : beside(); }
};

/// Bytes of the reply's object made from this record, which may be on the SSD only.
uint64_t decoded_bytes_of(const RunningFetch& f, const Record& record);
/// A shorter length, like shorter() in plan.h, by `decoded` bytes alone.
uint32_t shorter_reply(const RunningFetch& f, const Hit& hit, uint64_t decoded, uint64_t limit);

}  // namespace kv
