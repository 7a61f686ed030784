// MappedFrames: the reply of a fetch_mapped as frames: places of its objects, then the objects that
// lie in no segment that the client has.
//
// Frames are made for some objects at a time, as a long prompt has hundreds. Stored objects are
// mapped whole even if the client asked for some layers or parts, as it selects them itself;
// streamed ones are cut. Loop thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/daemon/mappings.h"
#include "proto/message.h"

namespace kv {

/// Fields of a fetch_mapped that its reply depends on.
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

  /// Segments that must be given to the client first.
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
    uint64_t payload_bytes = 0;     ///< bytes of the selection
    std::vector<uint8_t> encoded;   ///< a MappedObject, without its number
    std::optional<OutFrame> frame;  ///< the frame if it is streamed
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
  const std::string ns_;
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
