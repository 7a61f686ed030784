// Mappings: one connection's part of the pool's segments: segments given to it, its leases, and the
// headers that it was told.
//
//   segment:  ──announced, once──> given ──revoked──> leaving ──unmapped──> (none)
//   lease:    ──a mapped fetch──> held ──ended, no frame for lease_timeout──> (none)
//
// Segments and leases end with the connection. Bounded: leases, and known headers (both sides keep
// the newest kKnownHeaders); all of it is charged. Loop thread only. PROTOCOL.md, "Pools".
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/mapping_peers.h"
#include "proto/segment_message.h"

namespace kv {

inline constexpr size_t kMaxLeases = 1024;  ///< per connection

class Mappings {
 public:
  explicit Mappings(CacheCore& core) : core_(core) {}
  Mappings(const Mappings&) = delete;  // calls point here
  Mappings& operator=(const Mappings&) = delete;

  /// Begins for a client that named kFeatureSegments: true if the pool has segments, and RAM has
  /// room for the members below.
  bool enable();
  bool enabled() const { return room_ != nullptr; }

  /// Place of a stored or decoded object, for clients of `ns`.
  std::optional<SegmentPlace> place_of(const std::string& ns, const Object& object) const;
  /// True if the client was given the segment, and not told to let it go.
  bool given(uint32_t segment) const { return given_.contains(segment); }
  bool leaving(uint32_t segment) const { return leaving_.contains(segment); }
  /// The frame that gives it; it may be named in replies from then on.
  OutFrame give(const std::shared_ptr<const SegmentView>& view);

  /// True if the client has this object's header.
  bool knows(const SegmentPlace& place) const { return known_.contains(slot_of(place)); }
  /// The number under which a reply names an object in a given segment.
  struct Told {
    uint64_t number = 0;
    bool known = false;  ///< the client has its header; else the reply gives it
  };
  Told tell(const SegmentPlace& place);
  /// Number of a new lease; 0: no more may be held now.
  uint64_t keep(std::shared_ptr<const Lease> lease);
  /// Takes back lease and headers of a reply that was not sent.
  void forget(uint64_t lease, const std::vector<SegmentPlace>& told);

  /// Returns: corruption (the frame can't be read). Leases and segments that are not there are no
  /// error: they may have been taken back meanwhile.
  Status ended(const Frame& frame);
  Status unmapped(const Frame& frame);
  /// True if the client has the segment mapped, and is to be told.
  bool revoke(uint32_t segment);
  void take_back_all() { leases_.clear(); }
  /// The client has segments.
  bool any() const { return !given_.empty() || !leaving_.empty(); }
  /// Drops everything, as the connection is gone. Returns: the segments that its client had.
  SegmentViews drop();

 private:
  struct Slot {
    uint32_t segment = 0;
    uint64_t offset = 0, generation = 0;
    bool operator==(const Slot&) const = default;
  };
  struct SlotHash {
    size_t operator()(const Slot& s) const {
      return std::hash<uint64_t>{}(s.offset ^ (uint64_t{s.segment} << 40) ^ (s.generation << 52));
    }
  };
  struct Held {
    std::shared_ptr<const Lease> lease;
    std::shared_ptr<const void> room;
  };
  static Slot slot_of(const SegmentPlace& p) { return {p.segment, p.offset, p.generation}; }

  CacheCore& core_;
  std::shared_ptr<const void> room_;  ///< pays for known headers; null: not enabled
  std::unordered_map<uint32_t, std::shared_ptr<const SegmentView>> given_, leaving_;
  std::unordered_map<uint64_t, Held> leases_;
  std::unordered_map<Slot, uint64_t, SlotHash> known_;  // numbers of headers
  std::vector<Slot> ring_;                              // the newest kKnownHeaders
  uint64_t last_number_ = 0, last_lease_ = 0;
};

}  // namespace kv
