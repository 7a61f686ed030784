// Departures: what left both tiers lately, when and why, by id alone, so that a miss can say since
// when. A bounded memory that forgets the oldest of a few that share a place. At most a
// 2048th of the RAM budget, charged from the start: what leaves does so when there is no room.
// Loop thread only.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "cachesvc/core/env.h"
#include "proto/identity.h"
#include "proto/plane.h"
#include "proto/request_record.h"

namespace kv {

/// The least RAM budget of a core that remembers requests and departures.
inline constexpr uint64_t kLeastRememberingBudget = 16ull << 20;

/// The cause of an object's end; `nothing`: not worth remembering.
struct Cause {
  Missing why = Missing::nothing;
  ShareId by = kCommonShare;  ///< the share that needed its room
};

class Departures {
 public:
  struct Departure {
    Cause cause;
    uint64_t at_ms = 0;  ///< whole seconds, since 1970
  };

  explicit Departures(Env& env);
  Departures(const Departures&) = delete;  // one memory of a core
  Departures& operator=(const Departures&) = delete;

  void note(const ObjectName& name, Cause cause) { note(name, cause, now_s()); }
  void note(const ObjectName& name, Cause cause, uint32_t at_s);
  /// A block's supplements stand under its id, all as one.
  std::optional<Departure> find(const Id& id, ObjectKind kind) const;
  /// The time from which on all that left is remembered: the start, or the last that was forgotten.
  uint64_t complete_since_ms() const { return uint64_t{complete_since_s_} * 1000; }

 private:
  static constexpr size_t kWays = 8, kSets = 256;
  using Key = std::array<uint64_t, 2>;
  struct Entry {
    Key key{};
    uint32_t at_s = 0;  // 0: none
    Cause cause;
  };
  using Chunk = std::array<std::array<Entry, kWays>, kSets>;
  static_assert(sizeof(Chunk) <= 64u << 10);  // small memory (cache_core.h)

  uint32_t now_s() const { return static_cast<uint32_t>(env_.wall_ms() / 1000); }
  static Key key_of(const Id& id, ObjectKind kind);
  size_t chunk_of(const Key& key) const { return (key[0] >> 8) % chunks_.size(); }
  static size_t set_of(const Key& key) { return key[0] % kSets; }

  const Env& env_;
  std::vector<std::unique_ptr<Chunk>> chunks_;  // null: nothing of it has left yet
  Charge charge_;                               // pays for all of them
  uint32_t complete_since_s_;
};

}  // namespace kv
