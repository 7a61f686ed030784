// DescriptorQueue: descriptors that come beside the bytes of a Unix socket (SCM_RIGHTS), until the
// frames that they belong to are read; both come in order.
//
// Bounded; those that nobody takes are closed with it. One thread at a time.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <deque>
#include <span>

namespace kv {

/// Control data of a message with one descriptor.
union DescriptorSpace {
  cmsghdr align;
  char bytes[CMSG_SPACE(sizeof(int))];
};
/// Sends `descriptor` beside the first byte of a message, which uses `space` until it is sent.
void attach_descriptor(int descriptor, DescriptorSpace& space, msghdr& message);

class DescriptorQueue {
 public:
  /// At most `most` wait at a time.
  explicit DescriptorQueue(size_t most) : most_(most) {}
  ~DescriptorQueue();
  DescriptorQueue(const DescriptorQueue&) = delete;  // owns descriptors
  DescriptorQueue& operator=(const DescriptorQueue&) = delete;

  /// As recv(); what comes beside the bytes is kept. -1 with EPROTO: there are too many.
  ssize_t receive(int socket, std::span<uint8_t> to);
  /// The one that came first, the caller's from now on; -1: none.
  int take();

 private:
  void keep(msghdr& message);

  const size_t most_;
  std::deque<int> waiting_;
};

}  // namespace kv
