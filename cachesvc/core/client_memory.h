// ClientMemory: memory that connections of clients take beside the verbs. Bodies and replies on
// their way, what a connection keeps, segments that clients map, leases with many holders. Called
// by the daemon. Loop thread only; after the core has ended there is no room.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cachesvc/core/call.h"
#include "cachesvc/core/room_request.h"
#include "proto/client.h"

namespace kv {

class Calls;
class Compactor;
class Env;
class ObjectIndex;
class RamRoom;
class SegmentView;

/// A body that is about to arrive from a client, and what working on it will need. Everything is
/// reserved at once: a call that waits for room holds none.
struct Staging {
  PoolBuffer body;
  std::shared_ptr<RoomCharges> room;
};
enum class StagingFor : uint8_t {
  put,      ///< scratch to encode it, the stored result
  request,  ///< the decoded message
};

class ClientMemory {
 public:
  using Views = std::vector<std::shared_ptr<const SegmentView>>;

  ClientMemory(Env& env, ObjectIndex& index, RamRoom& room, Compactor& compactor, Calls& calls)
      : env_(env), index_(index), room_(room), compactor_(compactor), calls_(calls) {}
  ClientMemory(const ClientMemory&) = delete;  // calls point here
  ClientMemory& operator=(const ClientMemory&) = delete;

  /// Writes a body, on a worker.
  using Fill = std::function<Status(std::span<uint8_t> body)>;
  /// Allocates memory for a body of `bytes`; makes room and waits for it. `fill` writes it; null:
  /// it is about to arrive. Returns: resource_exhausted (more than the staging limit), busy,
  /// deadline_exceeded, what `fill` says.
  void allocate_staging(uint64_t session, uint64_t bytes, StagingFor what, CallTerms terms,
                        std::function<void(Result<Staging>)> done, Fill fill = {});
  /// Has a worker write something out, to memory of the client's; it looks at `stop` now and then.
  /// `done` comes once nothing is written any more, also where the call ends early.
  using WriteOut = std::function<Status(const std::atomic<bool>& stop)>;
  void write_out(uint64_t session, CallTerms terms, WriteOut write,
                 std::function<void(Status)> done);
  /// Room for a reply of so many bytes, for as long as the result lives; null: there is none now.
  /// `ns`: whose; empty: nobody's.
  std::shared_ptr<const void> reply_room(const std::string& ns, uint64_t bytes);
  /// Room for a connection's memory, likewise.
  std::shared_ptr<const void> session_room(uint64_t bytes);
  /// Prepares segments of `ns` for clients that map them: `done` gets a view of each that can be
  /// announced. The others are gone; or there is no room for all their memory, more of it would lie
  /// idle than is set aside, or more would be mapped than half of what the namespace can count on
  /// (without a quota: all that have none, together).
  void announce(const std::string& ns, std::vector<uint32_t> segments,
                std::function<void(Views)> done);
  /// Announces what `ns` has stored, so that its first hit doesn't wait for it: as long as
  /// announced segments take at most an eighth of the budget, and nothing has to go for their
  /// memory.
  void announce_ahead(const std::string& ns);
  /// Moves what lies in retired segments, as far as nobody has leases of it.
  void empty_retired();
  /// The lease for many holders: when the last one lets go, a worker frees what it held.
  std::shared_ptr<const Lease> share(Lease lease);

 private:
  Room staging_room(uint64_t session, uint64_t bytes, StagingFor what) const;
  std::shared_ptr<const void> room_now(const Room& room);

  Env& env_;
  ObjectIndex& index_;
  RamRoom& room_;
  Compactor& compactor_;
  Calls& calls_;
};

}  // namespace kv
