// POSIX side of SocketConnection: non-blocking descriptor, poll for the deadline, gathered writes
// straight from the planes, reads straight into the body that the planes will point into.
#include "proto/socket_connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "proto/memory_message.h"

namespace kv {
namespace {

constexpr int kSocketBufferBytes = 4 << 20;
constexpr size_t kMaxPieces = 256;         // per sendmsg; the kernel takes up to 1024
constexpr uint64_t kBodyUnit = 64u << 10;  // replies of nearly one size share their buffers

Status errno_status(const char* call) {
  return {StatusCode::unavailable, std::string(call) + ": " + std::strerror(errno)};
}

int64_t left_ms(Deadline deadline) {
  auto left = deadline - std::chrono::steady_clock::now();
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  return std::clamp<int64_t>(ms, 0, 24 * 3600 * 1000);
}

Result<int> connect_socket(const std::string& path, Deadline deadline) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return invalid_argument("socket path: " + std::to_string(path.size()) +
                            " bytes, expected fewer than " +
                            std::to_string(sizeof(address.sun_path)));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return errno_status("socket");
  // Bounds connect() while the listener's backlog is full.
  int64_t ms = std::max<int64_t>(left_ms(deadline), 1);
  timeval timeout{ms / 1000, (ms % 1000) * 1000};
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  int rc;
  do {
    rc = ::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (rc != 0 && errno == EINTR);
  if (rc != 0) {
    Status status =
        errno == EAGAIN
            ? Status(StatusCode::deadline_exceeded, "connect: " + path + " is full")
            : Status(StatusCode::unavailable, "connect " + path + ": " + std::strerror(errno));
    ::close(fd);
    return status;
  }
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

}  // namespace

std::shared_ptr<uint8_t> ReplyBodies::take(uint64_t size) {
  size = (size + kBodyUnit - 1) / kBodyUnit * kBodyUnit;
  auto give = [self = shared_from_this(), size](uint8_t* slab) {
    uint64_t keep = self->keep_bytes_;
    if (size <= keep) self->store_.trim(keep - size);  // the newest is what is asked for next
    self->store_.give(slab, size, keep);
  };
  return {store_.take(size), give};
}

// The service learns what stays unsaid from the end of the process. A forked child says nothing,
// nor does anybody amid a frame, whose rest it would be taken for.
SocketConnection::~SocketConnection() {
  const bool may_say = process_ == ::getpid() && !amid_frame_;
  const auto last = may_say ? segments_.farewell() : std::vector<uint8_t>();
  if (!last.empty()) (void)!::send(fd_, last.data(), last.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::close(fd_);
}

Result<std::shared_ptr<SocketConnection>> SocketConnection::open(
    const std::string& path, const HelloRequest& hello, std::shared_ptr<ReplyBodies> bodies,
    Deadline deadline) {
  KV_ASSIGN_OR_RETURN(int fd, connect_socket(path, deadline));
  std::shared_ptr<SocketConnection> connection(new SocketConnection(fd, std::move(bodies)));
  uint64_t id = connection->next_request();
  KV_ASSIGN_OR_RETURN(Frame frame, connection->call(reply_frame(FrameType::hello, id, hello), id,
                                                    FrameType::hello_ok, deadline));
  auto reply = decode_reply<HelloReply>(FrameType::hello_ok, frame.body.span());
  if (!reply.ok()) return reply.status();
  if (reply->version != kProtocolVersion || reply->ns != hello.ns) {
    return unsupported("hello_ok: version " + std::to_string(reply->version) + ", expected " +
                       std::to_string(kProtocolVersion) + ", or another namespace than asked for");
  }
  connection->hello_ = *reply;
  if ((reply->features & hello.features & kFeatureSegments) != 0) connection->segments_.enable();
  connection->takes_memory_ = (reply->features & hello.features & kFeatureMemory) != 0;
  connection->parser_.set_greeted(true);
  connection->parser_.set_external_above(kMaxControlBytes);
  return connection;
}

// A refusal is the service's right, and no reason to break: rows are sent then.
Result<uint32_t> SocketConnection::offer(const std::shared_ptr<OwnMemory>& memory,
                                         Deadline deadline) {
  constexpr uint32_t kNumber = 1;  // a connection offers one memory
  if (!memory || !takes_memory_) return 0u;
  if (offered_) return kNumber;
  const uint64_t id = next_request();
  OutFrame out = request_frame(FrameType::memory, id, 0, MemoryOffer{kNumber});
  out.descriptor = memory->fd();
  auto reply = call(out, id, FrameType::memory_ok, deadline);
  if (broken_ || reply.status().code() == StatusCode::cancelled) return reply.status();
  takes_memory_ = reply.ok();
  if (!reply.ok()) return 0u;
  offered_ = true;
  return kNumber;
}

bool SocketConnection::stale() {
  pollfd p{fd_, POLLIN, 0};
  if (broken_) return true;
  if (::poll(&p, 1, 0) == 0) return false;
  const auto unasked = arrived();  // takes what is said of segments
  return !unasked.ok() || unasked->has_value();
}

Status SocketConnection::give_up(Status status) {
  broken_ = true;
  return status;
}

Status SocketConnection::wait_for_peer(bool to_send, Deadline deadline) {
  return wait(static_cast<short>(to_send ? POLLIN | POLLOUT : POLLIN), deadline);
}

Status SocketConnection::wait(short events, Deadline deadline) {
  while (true) {
    pollfd p[] = {{fd_, events, 0}, {stop_.fd(), POLLIN, 0}};  // a negative one is passed over
    int64_t ms = left_ms(deadline);
    int n = ::poll(p, std::size(p), static_cast<int>(ms));
    if (n > 0 && p[1].revents != 0) stop_.see();
    if (n > 0) return {};
    if (n == 0 && std::chrono::steady_clock::now() >= deadline) {
      return give_up({StatusCode::deadline_exceeded, "the service did not answer in time"});
    }
    if (n < 0 && errno != EINTR) return give_up(errno_status("poll"));
  }
}

Result<uint64_t> SocketConnection::send_some(const OutFrame& frame, uint64_t from) {
  if (broken_) return Status(StatusCode::unavailable, "the connection is broken");
  iovec iov[kMaxPieces];
  msghdr message{};
  message.msg_iov = iov;
  message.msg_iovlen = gather(frame, from, iov, kMaxPieces);
  DescriptorSpace space{};
  if (frame.descriptor >= 0 && from == 0) attach_descriptor(frame.descriptor, space, message);
  while (true) {
    ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (n >= 0) {
      amid_frame_ = from + static_cast<uint64_t>(n) < frame.bytes();
      return static_cast<uint64_t>(n);
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
    if (errno != EINTR) return errno_status("send");
  }
}

// Reads the error that the service may have sent before it closed.
Status SocketConnection::last_words(Status closed, Deadline deadline) {
  auto last = receive(0, std::min(deadline, deadline_in(std::chrono::milliseconds(100))));
  broken_ = true;
  return last.ok() || last.status().code() == StatusCode::deadline_exceeded ? closed
                                                                            : last.status();
}

Status SocketConnection::send(const OutFrame& frame, Deadline deadline) {
  if (stop_.asked()) return cancelled();
  OutFrame first;
  first.head = owed();
  KV_RETURN_IF_ERROR(send_all(first, deadline));
  return send_all(frame, deadline);
}

Status SocketConnection::cancel(std::span<const uint64_t> requests, Deadline deadline) {
  OutFrame all;
  for (uint64_t request : requests) {
    const OutFrame one = reply_frame(FrameType::cancel, 0, Cancel{request});
    all.head.insert(all.head.end(), one.head.begin(), one.head.end());
  }
  return send_all(all, deadline);
}

Status SocketConnection::send_all(const OutFrame& frame, Deadline deadline) {
  const uint64_t total = frame.bytes();
  for (uint64_t sent = 0; sent < total;) {
    auto some = send_some(frame, sent);
    if (!some.ok()) return broken_ ? some.status() : last_words(some.status(), deadline);
    sent += *some;
    if (*some == 0) KV_RETURN_IF_ERROR(wait(POLLOUT, deadline));
  }
  return {};
}

// Receives bytes. False: nothing is there to read.
Result<bool> SocketConnection::read_some() {
  auto to = parser_.prepare();
  while (true) {
    ssize_t n = segments_.receive(fd_, to);
    if (n > 0) {
      Status status = parser_.commit(static_cast<size_t>(n));
      if (!status.ok()) return give_up(status);
      return true;
    }
    if (n == 0) {
      return give_up({StatusCode::unavailable, "the service closed the connection"});
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
    if (errno != EINTR) return give_up(errno_status("recv"));
  }
}

Result<std::optional<Frame>> SocketConnection::arrived() {
  while (true) {
    if (auto frame = parser_.next()) {
      if (body_) frame->body = Bytes(body_, body_.get(), frame->header.length);
      body_.reset();
      if (!SegmentLink::takes(frame->header.type)) return frame;
      if (Status status = segments_.take(*frame); !status.ok()) return give_up(status);
      continue;
    }
    if (!parser_.error().ok()) return give_up(parser_.error());
    if (const FrameHeader* large = parser_.awaiting()) {
      body_ = bodies_->take(large->length);
      parser_.use_buffer({body_.get(), large->length});
      continue;
    }
    KV_ASSIGN_OR_RETURN(bool more, read_some());
    if (!more) return std::optional<Frame>();
  }
}

Status SocketConnection::out_of_step(const Frame& frame, uint64_t expected) {
  if (frame.header.type == FrameType::error) {
    auto error = decode_reply<ErrorReply>(FrameType::error, frame.body.span());
    return give_up(error.ok() ? Status(error->code, error->message) : error.status());
  }
  return give_up(corruption("a reply to request " + std::to_string(frame.header.request) +
                            ", expected " + std::to_string(expected)));
}

Result<Frame> SocketConnection::reply_of(uint64_t request, Frame frame) {
  if (frame.header.request != request) return out_of_step(frame, request);
  if (frame.header.type != FrameType::error) return frame;
  auto error = decode_reply<ErrorReply>(FrameType::error, frame.body.span());
  if (!error.ok()) return give_up(error.status());
  return Status(error->code, error->message);
}

Result<Frame> SocketConnection::receive(uint64_t request, Deadline deadline) {
  bool told = false;  // the service knows that the stop was asked for
  while (true) {
    auto frame = arrived();
    if (!frame.ok()) return frame.status();
    if (*frame) return reply_of(request, std::move(**frame));
    if (stop_.asked() && !std::exchange(told, true)) {
      KV_RETURN_IF_ERROR(cancel({&request, 1}, deadline));
    }
    KV_RETURN_IF_ERROR(wait(POLLIN, deadline));
  }
}

Result<Frame> SocketConnection::call(const OutFrame& frame, uint64_t request, FrameType expected,
                                     Deadline deadline) {
  KV_RETURN_IF_ERROR(send(frame, deadline));
  KV_ASSIGN_OR_RETURN(Frame reply, receive(request, deadline));
  if (reply.header.type != expected) {
    return give_up(corruption(std::string("a ") + to_string(reply.header.type) +
                              " frame, expected " + to_string(expected)));
  }
  return reply;
}

}  // namespace kv
