// FetchFrames: the reply of a fetch as frames: header, objects, done. Objects travel whole, or as
// headers where their payload is written into the client's memory.
//
// Frames are made for some objects at a time, as a long prompt has hundreds. The lease lives until
// the last of its frames is sent. Loop thread only.
#pragma once

#include <memory>
#include <vector>

#include "cachesvc/core/cache_core.h"
#include "proto/message.h"

namespace kv {

/// Bytes of replies that a connection may owe uncharged, beside planes.
inline constexpr uint64_t kMaxUnchargedReplyBytes = 32u << 10;

class FetchFrames {
 public:
  /// Objects whose frames are made in one step of the loop.
  static constexpr size_t kObjectsPerStep = 32;

  enum class Objects : uint8_t { whole, headers };
  /// The reply to `request`, whose client takes at most `max_reply_bytes` of objects (of headers:
  /// of their payloads).
  FetchFrames(CacheCore& core, uint64_t request, FetchReply reply, uint64_t max_reply_bytes,
              Objects objects = Objects::whole);

  /// True once all frames are made, or an error() says why not.
  bool step();
  const Status& error() const { return error_; }
  /// Payloads of all objects, in order; they live as long as this.
  std::vector<Bytes> payload() const;
  /// The frames in the order in which they are sent. Once, after step() gave true.
  std::vector<OutFrame> take() { return std::move(frames_); }

 private:
  OutFrame frame_of(const FetchedObject& object) const;

  const uint64_t request_, max_reply_bytes_;
  const Objects objects_;
  const std::shared_ptr<const Lease> lease_;
  FetchHeader header_;
  std::vector<OutFrame> frames_;  ///< the first place is the header's
  Status error_;
};

}  // namespace kv
