// MappedFrames: the reply of a fetch_mapped as frames: where its objects lie, then those that lie
// in no segment that the client has.
//
// Made some objects at a time, as a long prompt has hundreds. Of a client that asked for some
// layers or parts of stored objects the whole objects are mapped, as it selects them itself; what
// is streamed is cut. Loop thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/daemon/mappings.h"
#include "proto/message.h"

namespace kv {

/// A fetch_mapped's own: what of the call its reply depends on.
struct MappedCall {
  Selection selection;
  uint64_t max_reply_bytes = 0;
  Milliseconds lease_timeout{0};
};

class MappedFrames {
 public:
  /// The reply to `request` of a client of `ns`.
  MappedFrames(CacheCore& core, Mappings& mappings, const std::string& ns, uint64_t request,
               const MappedCall& call, FetchReply reply);

  /// Segments that the client has to be given first.
  std::vector<uint32_t> unknown() const;
  /// True once all frames are made, or an error() says why not. Headers and leases count as told
  /// from then on. `unsent_bytes`: of the connection.
  bool step(uint64_t unsent_bytes);
  const Status& error() const { return error_; }
  /// The frames in the order in which they are sent. Once, after step() gave true.
  std::vector<OutFrame> take() { return std::move(frames_); }

 private:
  struct Part {
    FetchedObject object;
    std::optional<SegmentPlace> place;
    uint64_t payload_bytes = 0;     ///< of what the selection takes
    std::vector<uint8_t> encoded;   ///< as MappedObject, with no number yet
    std::optional<OutFrame> frame;  ///< if it is streamed
  };
  static MappedObject place_words(const Part& part);
  void prepare(Part& part);
  void stream(Part& part);
  void finish(uint64_t unsent_bytes);
  void say_places(uint64_t unsent_bytes);
  void tell(Part& part);
  void refuse(Status why);

  CacheCore& core_;
  Mappings& mappings_;
  const uint64_t request_;
  const MappedCall call_;
  MappedReply reply_;
  std::shared_ptr<const Lease> lease_;
  std::vector<Part> parts_;
  size_t prepared_ = 0;
  std::vector<Bytes> places_;
  std::vector<SegmentPlace> told_;
  std::vector<OutFrame> frames_;
  Status error_;
};

}  // namespace kv
