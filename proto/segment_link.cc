// Descriptors that come beside bytes, and the frames of segments.
#include "proto/segment_link.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace kv {
namespace {

constexpr size_t kMaxDescriptors = 8;  // descriptors that wait for their frame

}  // namespace

SegmentLink::~SegmentLink() {
  for (int fd : descriptors_) ::close(fd);
}

void SegmentLink::keep_descriptors(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
      descriptors_.push_back(fd);
    }
  }
}

ssize_t SegmentLink::receive(int socket, std::span<uint8_t> to) {
  if (!enabled_) return ::recv(socket, to.data(), to.size(), 0);  // the kernel closes what came
  iovec into{to.data(), to.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (n <= 0) return n;
  keep_descriptors(message);
  if ((message.msg_flags & MSG_CTRUNC) == 0 && descriptors_.size() <= kMaxDescriptors) return n;
  errno = EPROTO;  // some may be lost, so their frames are unknown
  return -1;
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
  if (descriptors_.empty()) return corruption("segment: it came without its descriptor");
  const int fd = descriptors_.front();
  descriptors_.pop_front();
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
