// Frames of segments, ended leases and mappings.
#include "proto/segment_link.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <utility>

namespace kv {

ssize_t SegmentLink::receive(int socket, std::span<uint8_t> to) {
  if (!enabled_) return ::recv(socket, to.data(), to.size(), 0);  // the kernel closes what came
  return descriptors_.receive(socket, to);
}

bool SegmentLink::takes(FrameType type) {
  return type == FrameType::segment || type == FrameType::segment_revoked;
}

Status SegmentLink::take(const Frame& frame) {
  const FrameType type = frame.header.type;
  if (frame.header.request != 0 || !enabled_) {
    return corruption(std::string("a ") + to_string(type) + " frame that nobody asked for");
  }
  if (type == FrameType::segment_revoked) {
    KV_ASSIGN_OR_RETURN(auto revoked, decode_reply<SegmentRevoked>(type, frame.body.span()));
    map_.revoke(revoked.segment);
    return {};
  }
  KV_ASSIGN_OR_RETURN(auto announced, decode_reply<SegmentAnnounced>(type, frame.body.span()));
  const int fd = descriptors_.take();
  if (fd < 0) return corruption("segment: it came without its descriptor");
  Status mapped = map_.add(announced, fd);
  ::close(fd);
  return mapped;
}

std::vector<uint8_t> SegmentLink::farewell() {
  map_.revoke_all();
  return owed();
}

std::vector<uint8_t> SegmentLink::owed() {
  std::vector<uint8_t> out;
  if (!enabled_) return out;
  auto add = [&out](const OutFrame& frame) {
    out.insert(out.end(), frame.head.begin(), frame.head.end());
  };
  for (auto ended = map_.ended()->take(); !ended.empty(); ended = map_.ended()->take()) {
    add(reply_frame(FrameType::leases_ended, 0, LeasesEnded{std::move(ended)}));
  }
  for (uint32_t id : map_.unmapped()) {
    add(reply_frame(FrameType::segment_unmapped, 0, SegmentUnmapped{id}));
  }
  return out;
}

}  // namespace kv
