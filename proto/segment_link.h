// SegmentLink: the shared pools' part of a client's connection: it takes the descriptors that come
// beside bytes and the unrequested frames, and reports ended leases and mappings.
//
// A descriptor belongs to the segment frame whose first byte it came with; both come in order.
// Closed with its connection. One thread at a time. PROTOCOL.md, "Pools".
#pragma once

#include <span>
#include <vector>

#include "proto/descriptor_queue.h"
#include "proto/frame.h"
#include "proto/segment_map.h"

namespace kv {

class SegmentLink {
 public:
  SegmentLink() = default;
  SegmentLink(const SegmentLink&) = delete;  // owns descriptors
  SegmentLink& operator=(const SegmentLink&) = delete;

  /// Enables it: both sides have kFeatureSegments.
  void enable() { enabled_ = true; }
  bool enabled() const { return enabled_; }
  SegmentMap& map() { return map_; }

  /// Receives like recv(), and keeps descriptors that come. -1 with EPROTO if there are too many.
  ssize_t receive(int socket, std::span<uint8_t> to);
  static bool takes(FrameType type);
  /// Takes a frame about segments. Returns: corruption, unavailable (mmap).
  Status take(const Frame& frame);
  /// Frames that the service has to have before its next request: leases and mappings that ended.
  std::vector<uint8_t> owed();
  /// The last frames of a connection: it lets all segments go that no lease needs.
  std::vector<uint8_t> farewell();

 private:
  static constexpr size_t kMaxDescriptors = 8;  // that wait for their frame

  bool enabled_ = false;
  DescriptorQueue descriptors_{kMaxDescriptors};
  SegmentMap map_;
};

}  // namespace kv
