// RunningFetch: one fetch under way, what its hit takes of RAM, and how much shorter it must be to
// fit. Values and pure functions; loop thread only.
#pragma once

#include <set>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/plan.h"

namespace kv {

struct RunningFetch {
  /// Its answer to missing room; it only ever goes down.
  enum class Patience : uint8_t {
    wait,      ///< for all that the hit needs
    now,       ///< what there is room for now
    ram_only,  ///< no room for a promotion now: what RAM holds
  };
  std::shared_ptr<Call<Result<FetchReply>>> call;  ///< null: nobody waits for the rest
  std::function<void()> loaded;  ///< called in place of a next step; null: there is one
  std::shared_ptr<RealmState> realm;
  std::shared_ptr<const Query> query;
  FetchRequest request;  ///< without its query
  Deadline deadline;
  Patience patience = Patience::wait;
  uint32_t max_tokens = UINT32_MAX;  ///< what is held, and RAM has room for
  bool checked = false;              ///< what was due is
  uint64_t window_bytes = 0;         ///< of file and unpacked bytes while the hit is read
  std::string limit_reason;
  std::set<ObjectName> promoted;  ///< were not in RAM when the call came
  uint64_t ssd_tokens = 0;        ///< of the hit: those of promoted blocks and tails
  uint32_t rounds = 0;

  /// The reply's planes are made for it: decoded, or cut to some heads.
  bool copies() const {
    return request.form != FetchForm::stored || !request.selection.heads.all();
  }
  /// Some worker has to look at each object first.
  bool needs_work() const {
    const Selection& s = request.selection;
    return copies() || (!request.whole_objects && (!s.layers.all() || !s.parts.all()));
  }
  void lose_patience() {
    patience = patience == Patience::wait ? Patience::now : Patience::ram_only;
  }
};

/// The RAM that a hit takes. Its objects are read a few at a time, so one that is being read counts
/// once. The same for a hit that is in RAM already: what fits does not change while it is read.
struct FetchCost {
  uint64_t all = 0;      ///< every object as it lies in RAM
  uint64_t missing = 0;  ///< those that don't, and that nobody reads
  uint64_t reading = 0;  ///< file and unpacked bytes of the missing ones
  uint64_t largest = 0;  ///< such bytes of any one
  uint64_t decoded = 0;  ///< every object as the client wants it; 0: as it lies in RAM
  /// Beside the objects: what is missing is read, and then all is decoded.
  uint64_t beside() const { return std::max(missing > 0 ? largest : 0, decoded); }
};

/// Bytes of the object made for this call's reply, also of one that is on the SSD only.
uint64_t decoded_bytes_of(const RunningFetch& f, const Record& record);
/// The same as shorter (plan.h), for `decoded` bytes alone.
uint32_t shorter_reply(const RunningFetch& f, const Hit& hit, uint64_t decoded, uint64_t limit);

}  // namespace kv
