// Limits and room of replies. See replies.h.
#include "cachesvc/daemon/replies.h"

#include "cachesvc/daemon/fetch_frames.h"

namespace kv {

uint64_t Replies::expected_bytes(const OpenReply& reply) {
  return encoded_bytes(*reply.profile) + reply.parts.size() * sizeof(CodingReport);
}

// True if so many bytes may be unsent beside those that are, with `room` where they must have it.
bool Replies::take_room(uint64_t bytes, std::shared_ptr<const void>& room) {
  if (room || to_.out().unsent_bytes() + bytes <= kMaxUnchargedReplyBytes) return true;
  room = core_.memory().reply_room(ns_, bytes);
  return room != nullptr;
}

void Replies::refuse(uint64_t request, FrameType type, uint64_t bytes) {
  send_error(to_, request,
             {StatusCode::busy, std::string(to_string(type)) + ": no RAM for " +
                                    std::to_string(bytes) + " bytes of reply now"});
}

void Replies::send_within(uint64_t request, FrameType type, OutFrame frame,
                          std::shared_ptr<const void> room) {
  const uint64_t bytes = frame.bytes() - kFrameHeaderBytes;
  const uint64_t limit = max_body_bytes(type, true);
  if (bytes > limit) {
    return send_error(
        to_, request,
        {StatusCode::resource_exhausted,
         std::string(to_string(type)) + ": over the limit of " + std::to_string(limit) + " bytes"});
  }
  if (!take_room(bytes, room)) return refuse(request, type, bytes);
  frame.kept = std::move(room);
  send(to_, std::move(frame), true);
}

Done<Status> Replies::acknowledge(uint64_t request, FrameType type) {
  return [this, keep = to_.keep(), request, type](Status status) {
    if (to_.closed()) return;
    if (!status.ok()) return send_error(to_, request, status);
    send(to_, reply_frame(type, request, Empty{}), true);
  };
}

}  // namespace kv
