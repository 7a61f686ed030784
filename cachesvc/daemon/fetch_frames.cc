// The frames of a fetch's reply.
#include "cachesvc/daemon/fetch_frames.h"

#include <algorithm>

namespace kv {

FetchFrames::FetchFrames(CacheCore& core, uint64_t request, FetchReply reply,
                         uint64_t max_reply_bytes)
    : request_(request),
      max_reply_bytes_(max_reply_bytes),
      lease_(core.memory().share(std::move(reply.lease))),
      header_{
          reply.tokens, reply.common, reply.pending, reply.tier, reply.form, reply.reason, 0, 0},
      frames_(1) {
  frames_.reserve(lease_->prefix().objects.size() + 2);
}

bool FetchFrames::step() {
  const auto& objects = lease_->prefix().objects;
  const size_t end = std::min<size_t>(objects.size(), header_.objects + kObjectsPerStep);
  for (; header_.objects < end; ++header_.objects) {
    OutFrame& frame = frames_.emplace_back(fetch_object_frame(request_, objects[header_.objects]));
    frame.kept = lease_;
    const uint64_t body = frame.bytes() - kFrameHeaderBytes;
    header_.object_bytes += body;
    if (body <= kMaxObjectFrameBytes && header_.object_bytes <= max_reply_bytes_) continue;
    error_ = {StatusCode::resource_exhausted,
              "fetch: the reply is over max_reply_bytes " + std::to_string(max_reply_bytes_) +
                  " or an object over its frame: ask for fewer tokens"};
    return true;
  }
  if (end < objects.size()) return false;
  frames_.front() = reply_frame(FrameType::fetch_header, request_, header_);
  frames_.push_back(reply_frame(FrameType::fetch_done, request_, FetchDone{header_.objects}));
  return true;
}

}  // namespace kv
