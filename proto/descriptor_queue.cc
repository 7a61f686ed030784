// recvmsg, and the descriptors in its control data.
#include "proto/descriptor_queue.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kv {
namespace {

constexpr size_t kMostAtOnce = 8;  // beside one recvmsg; the kernel closes others

}  // namespace

void attach_descriptor(int descriptor, DescriptorSpace& space, msghdr& message) {
  message.msg_control = space.bytes;
  message.msg_controllen = sizeof(space.bytes);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(header), &descriptor, sizeof(descriptor));
}

DescriptorQueue::~DescriptorQueue() {
  for (int fd : waiting_) ::close(fd);
}

void DescriptorQueue::keep(msghdr& message) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
      waiting_.push_back(fd);
    }
  }
}

ssize_t DescriptorQueue::receive(int socket, std::span<uint8_t> to) {
  iovec into{to.data(), to.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMostAtOnce * sizeof(int))];
  msghdr message{};
  message.msg_iov = &into;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (n <= 0) return n;
  keep(message);
  if ((message.msg_flags & MSG_CTRUNC) == 0 && waiting_.size() <= most_) return n;
  errno = EPROTO;  // some may be lost, so their frames are unknown
  return -1;
}

int DescriptorQueue::take() {
  if (waiting_.empty()) return -1;
  const int fd = waiting_.front();
  waiting_.pop_front();
  return fd;
}

}  // namespace kv
