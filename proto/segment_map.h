// SegmentMap: the segments that one connection of a client has mapped, and the objects in them
// whose headers it was told.
//
// A mapping lives as long as it has a reader: this map, or a lease. A revoked segment leaves the
// map at once; once its last lease has ended unmapped() names it. The service's frames are checked:
// a descriptor that can shrink, or a place outside of its segment, is an error of the connection.
// One thread at a time, but for leases: theirs end on any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "proto/segment_message.h"

namespace kv {

/// A segment in this process, read-only.
class SegmentMapping {
 public:
  SegmentMapping(const uint8_t* begin, uint64_t bytes) : begin_(begin), bytes_(bytes) {}
  ~SegmentMapping();
  SegmentMapping(const SegmentMapping&) = delete;  // owns the mapping
  SegmentMapping& operator=(const SegmentMapping&) = delete;
  const uint8_t* begin() const { return begin_; }
  uint64_t bytes() const { return bytes_; }

 private:
  const uint8_t* const begin_;
  const uint64_t bytes_;
};

/// Numbers of leases that have ended and of which the service was not told yet. Any thread.
class EndedLeases {
 public:
  void add(uint64_t lease);
  /// Takes at most kMaxEndedLeases of them.
  std::vector<uint64_t> take();

 private:
  std::mutex mutex_;
  std::vector<uint64_t> leases_;
};

/// A prefix whose streamed objects are still to come: their pointers are null.
struct MappedPrefix {
  Prefix prefix;
  std::shared_ptr<const LeaseCheck> lease;  ///< null: nothing is mapped
};

class SegmentMap {
 public:
  SegmentMap() : ended_(std::make_shared<EndedLeases>()) {}
  SegmentMap(const SegmentMap&) = delete;  // leases point to its parts
  SegmentMap& operator=(const SegmentMap&) = delete;

  /// Maps what was announced; `fd` is the caller's, and may be closed afterwards. Returns:
  /// corruption (no such descriptor as was said, a second one of that number), unavailable (mmap).
  Status add(const SegmentAnnounced& announced, int fd);
  /// Takes a segment out of the map: it gets no new objects, and known ones in it are forgotten.
  void revoke(uint32_t segment);
  /// Revokes all segments: the connection ends.
  void revoke_all();
  /// Revoked segments whose mapping has gone; once each.
  std::vector<uint32_t> unmapped();
  /// The objects of a reply, whole as they are stored but for the planes and states that
  /// `selection` leaves out; in order of the replies. Returns: corruption (a place or number that
  /// can't be).
  Result<MappedPrefix> take(const MappedReply& reply, const Selection& selection);
  const std::shared_ptr<EndedLeases>& ended() const { return ended_; }
  size_t segments() const { return segments_.size(); }

 private:
  /// An object with its payload in a mapping.
  struct Known {
    uint64_t number = 0;
    uint32_t segment = 0;
    ObjectPtr object;
    const std::atomic<uint64_t>* counter = nullptr;
    uint64_t generation = 0;
  };
  Result<Known> learn(const MappedObject& told) const;

  std::map<uint32_t, std::shared_ptr<const SegmentMapping>> segments_;
  std::vector<std::pair<uint32_t, std::weak_ptr<const SegmentMapping>>> revoked_;
  std::vector<Known> known_ = std::vector<Known>(kKnownHeaders);  // index: number modulo its size
  const std::shared_ptr<EndedLeases> ended_;
};

}  // namespace kv
