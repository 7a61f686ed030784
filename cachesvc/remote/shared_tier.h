// SharedTier: what the core asks of a tier that many machines share: find, get, put if absent,
// erase, and agree on a profile. REMOTE.md says what lies there. The core knows no more of it, so
// another kind of engine may stand behind it.
//
// Any thread may call; nothing waits. Each `done` is called once, on a thread of the tier's, unless
// the tier is closed before.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "cachesvc/remote/names.h"
#include "cachesvc/remote/value.h"

namespace kv {

/// Names of one find() or erase(): one node may have them all (kMaxLinkCommands).
inline constexpr size_t kMaxRemoteNames = 2048;

/// An answer of find().
struct RemoteFound {
  enum class State : uint8_t {
    absent,
    there,
    foreign,    ///< of another version or key: a miss that stays
    damaged,    ///< its first bytes are no value's
    unreached,  ///< nobody said
  };
  RemoteName name;
  State state = State::absent;
  RemoteFront front;  ///< there: how long it is, and whose
};

/// An answer of list(): what stands in the list, in no order; nothing where nobody said.
using RemoteListed = std::vector<RemoteEntry>;

/// A model's profile in the tier.
struct RemoteProfile {
  std::shared_ptr<const Profile> profile;
  Id id;
};

enum class RemotePut : uint8_t { stored, existed };

struct RemoteErased {
  uint64_t erased = 0;     ///< names that were there, and are gone
  uint64_t unreached = 0;  ///< names that may be there still
};

struct RemoteCounts {
  uint64_t asked = 0, found = 0;                    // names
  uint64_t hits = 0, bytes_in = 0;                  // objects taken
  uint64_t stored = 0, existed = 0, bytes_out = 0;  // objects put
  uint64_t misses_absent = 0, misses_damaged = 0;   // of get(): by reason
  uint64_t misses_foreign = 0, misses_unreached = 0;
  uint64_t busy = 0, put_failures = 0, refused_full = 0;
  uint64_t unlinked = 0;  // damaged ones
};

/// Counts of the tier, and how it is.
struct SharedTierState {
  RemoteCounts counts;
  uint64_t bytes_in_flight = 0;
  uint64_t nodes = 0;       ///< known
  uint64_t nodes_lost = 0;  ///< that are not asked now
  std::string last_error;   ///< of one of those
};

class SharedTier {
 public:
  using Clock = std::chrono::steady_clock;
  virtual ~SharedTier() = default;

  /// As the verbs of RemoteTier (remote/tier.h).
  virtual void find(std::vector<RemoteName> names, Clock::time_point deadline,
                    std::function<void(std::vector<RemoteFound>)> done) = 0;
  virtual void list(std::vector<RemoteList> lists, Clock::time_point deadline,
                    std::function<void(std::vector<RemoteListed>)> done) = 0;
  virtual void get(const RemoteFound& found, Clock::time_point deadline,
                   std::function<void(Result<FileImage>)> done) = 0;
  virtual void put(FileImage image, const RemoteName& name, Clock::time_point deadline,
                   std::function<void(Result<RemotePut>)> done) = 0;
  virtual void agree(const RemoteSpace& space, const Id& fingerprint,
                     std::shared_ptr<const Profile> own, Clock::time_point deadline,
                     std::function<void(Result<RemoteProfile>)> done) = 0;
  virtual void erase(std::vector<RemoteName> names, Clock::time_point deadline,
                     std::function<void(RemoteErased)> done) = 0;
  virtual void erase_all(const RemoteSpace& space, Clock::time_point deadline,
                         std::function<void(RemoteErased)> done) = 0;
  /// Waits for the tier's thread. Not on the core's loop.
  virtual SharedTierState state() = 0;
  /// Ends the tier; what is under way ends with `unavailable`. Not from a `done`.
  virtual void close() = 0;
};

}  // namespace kv
