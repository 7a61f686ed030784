// The frames of a fetch's reply.
#include "cachesvc/daemon/fetch_frames.h"

#include <algorithm>

#include "proto/into.h"

namespace kv {

FetchFrames::FetchFrames(CacheCore& core, uint64_t request, FetchReply reply,
                         uint64_t max_reply_bytes, Objects objects)
    : request_(request),
      max_reply_bytes_(max_reply_bytes),
      objects_(objects),
      lease_(core.memory().share(std::move(reply.lease))),
      header_{
          reply.tokens, reply.common, reply.pending, reply.tier, reply.form, reply.reason, 0, 0},
      frames_(1) {
  frames_.reserve(lease_->prefix().objects.size() + 2);
}

OutFrame FetchFrames::frame_of(const FetchedObject& object) const {
  if (objects_ == Objects::headers) return fetch_placed_frame(request_, object);
  OutFrame frame = fetch_object_frame(request_, object);
  frame.kept = lease_;
  return frame;
}

std::vector<Bytes> FetchFrames::payload() const {
  std::vector<Bytes> all;
  for (const FetchedObject& o : lease_->prefix().objects) {
    for (const Plane& p : o.object->planes) all.push_back(p.bytes);
    for (const StateBlob& s : o.object->states) all.push_back(s.bytes);
  }
  return all;
}

bool FetchFrames::step() {
  const auto& objects = lease_->prefix().objects;
  const size_t end = std::min<size_t>(objects.size(), header_.objects + kObjectsPerStep);
  for (; header_.objects < end; ++header_.objects) {
    const FetchedObject& object = objects[header_.objects];
    const uint64_t body = frames_.emplace_back(frame_of(object)).bytes() - kFrameHeaderBytes;
    header_.object_bytes += objects_ == Objects::whole ? body : payload_bytes_of(*object.object);
    if (body <= kMaxObjectFrameBytes && header_.object_bytes <= max_reply_bytes_) continue;
    error_ = {StatusCode::resource_exhausted,
              "fetch: the reply is over max_reply_bytes (or the runs' bytes) " +
                  std::to_string(max_reply_bytes_) +
                  " or an object over its frame: ask for fewer tokens"};
    return true;
  }
  if (end < objects.size()) return false;
  frames_.front() = reply_frame(FrameType::fetch_header, request_, header_);
  frames_.push_back(reply_frame(FrameType::fetch_done, request_, FetchDone{header_.objects}));
  return true;
}

}  // namespace kv
