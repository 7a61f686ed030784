// Frames that have no answer, of either side.
#include "cachesvc/daemon/requests.h"

namespace kv {

bool Requests::took(const Frame& frame, Status& status) {
  if (frame.header.type == FrameType::memory_ended && peer_.session() != 0) {
    auto ended = decode_reply<MemoryEnded>(FrameType::memory_ended, frame.body.span());
    if (ended.ok()) memories_.end(ended->memory);
    status = ended.status();
    return true;
  }
  if (frame.header.type == FrameType::cancel && peer_.session() != 0) {
    status = cancel(frame);
    return true;
  }
  const bool ended = frame.header.type == FrameType::leases_ended;
  if (!mappings_.enabled() || (!ended && frame.header.type != FrameType::segment_unmapped)) {
    return false;
  }
  status = ended ? mappings_.ended(frame) : mappings_.unmapped(frame);
  return true;
}

// In its turn, which comes after that of the request if that waits for one.
Status Requests::cancel(const Frame& frame) {
  auto m = decode_reply<Cancel>(FrameType::cancel, frame.body.span());
  if (!m.ok()) return m.status();
  host_.take_turn([this, keep = host_.keep(), request = m->request] {
    if (!host_.closed()) core_.cancel(peer_.session(), request);
  });
  return {};
}

void Requests::revoke(uint32_t segment) {
  if (host_.closed() || !mappings_.revoke(segment)) return;
  send(host_, reply_frame(FrameType::segment_revoked, 0, SegmentRevoked{segment}), false);
}

}  // namespace kv
