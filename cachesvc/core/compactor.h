// Compactor: moves objects out of retired segments, so that these can go back to the system whole.
// Clients have them mapped, so that no part of one goes alone, and what lies idle there is lacking
// elsewhere.
//
//   idle ──begin()──> looking ──some are found──> moving ──pause──> moving … ──> looking
//     ▲                  │ all nodes are looked at    │ RAM has no room
//     └──────────────────┴────────────────────────────┘
//
// Moves what nobody has pinned: a lease pins. One object at a time, at most kBytesPerSecond, each
// copy checked against its sum. A walk that has moved nothing is the last one for kRest: what is
// left is pinned, or mapped for nothing. Loop thread only; copies on workers.
#pragma once

#include <memory>
#include <vector>

#include "cachesvc/core/object_buffer.h"
#include "cachesvc/core/ram_checks.h"
#include "cachesvc/loop/timer.h"

namespace kv {

class Compactor {
 public:
  static constexpr uint64_t kBytesPerSecond = 256u << 20;
  static constexpr size_t kFoundAtATime = 64;
  static constexpr std::chrono::seconds kRest{60};

  Compactor(Env& env, ObjectIndex& index, RamChecks& checks);
  Compactor(const Compactor&) = delete;  // steps point here
  Compactor& operator=(const Compactor&) = delete;

  /// Looks at all that is stored, once, unless that is under way or rests.
  void begin();
  bool idle() const { return state_ == State::idle; }
  void check_invariants() const { KV_CHECK(state_ == State::moving || found_.empty()); }

 private:
  enum class State : uint8_t { idle, looking, moving };
  void move(State to);
  void look();
  void look_at(RealmState& realm, NodeId node);
  void end_walk();
  bool may_move(const Record* record) const;
  void next();
  void copy(const Record& record);
  void copied(const PinnedName& which, RamObject from, Result<RamObject> to);

  Env& env_;
  ObjectIndex& index_;
  RamChecks& checks_;
  State state_ = State::idle;
  std::vector<std::weak_ptr<RealmState>> realms_;  // the last one is looked at
  NodeId next_ = kRootNode;                        // the first that is not looked at
  std::vector<PinnedName> found_;
  bool moved_ = false;              // by this walk
  Clock::time_point not_before_{};  // of the next one
  Timer pause_;
};

}  // namespace kv
