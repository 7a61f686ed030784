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

SocketConnection::~SocketConnection() { ::close(fd_); }

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
  connection->parser_.set_greeted(true);
  connection->parser_.set_external_above(kMaxControlBytes);
  return connection;
}

bool SocketConnection::stale() const {
  pollfd p{fd_, POLLIN, 0};
  return broken_ || ::poll(&p, 1, 0) != 0;
}

Status SocketConnection::give_up(Status status) {
  broken_ = true;
  return status;
}

Status SocketConnection::wait(short events, Deadline deadline) {
  while (true) {
    pollfd p{fd_, events, 0};
    int64_t ms = left_ms(deadline);
    int n = ::poll(&p, 1, static_cast<int>(ms));
    if (n > 0) return {};
    if (n == 0 && std::chrono::steady_clock::now() >= deadline) {
      return give_up({StatusCode::deadline_exceeded, "the service did not answer in time"});
    }
    if (n < 0 && errno != EINTR) return give_up(errno_status("poll"));
  }
}

Status SocketConnection::send(const OutFrame& frame, Deadline deadline) {
  if (broken_) return {StatusCode::unavailable, "the connection is broken"};
  const uint64_t total = frame.bytes();
  iovec iov[kMaxPieces];
  for (uint64_t sent = 0; sent < total;) {
    msghdr message{};
    message.msg_iov = iov;
    message.msg_iovlen = gather(frame, sent, iov, kMaxPieces);
    ssize_t n = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<uint64_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      KV_RETURN_IF_ERROR(wait(POLLOUT, deadline));
    } else if (errno != EINTR) {
      // The service may have said why before it closed.
      Status closed = errno_status("send");
      auto last = receive(0, std::min(deadline, deadline_in(std::chrono::milliseconds(100))));
      broken_ = true;
      return last.ok() || last.status().code() == StatusCode::deadline_exceeded ? closed
                                                                                : last.status();
    }
  }
  return {};
}

Status SocketConnection::read_some(Deadline deadline) {
  auto to = parser_.prepare();
  while (true) {
    ssize_t n = ::recv(fd_, to.data(), to.size(), 0);
    if (n > 0) {
      Status status = parser_.commit(static_cast<size_t>(n));
      return status.ok() ? status : give_up(status);
    }
    if (n == 0) return give_up({StatusCode::unavailable, "the service closed the connection"});
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      KV_RETURN_IF_ERROR(wait(POLLIN, deadline));
    } else if (errno != EINTR) {
      return give_up(errno_status("recv"));
    }
  }
}

Result<Frame> SocketConnection::receive(uint64_t request, Deadline deadline) {
  while (true) {
    if (auto frame = parser_.next()) {
      if (body_) frame->body = Bytes(body_, body_.get(), frame->header.length);
      body_.reset();
      if (frame->header.type == FrameType::error) {
        auto error = decode_reply<ErrorReply>(FrameType::error, frame->body.span());
        if (!error.ok()) return give_up(error.status());
        if (frame->header.request != request) broken_ = true;  // about the connection as a whole
        return Status(error->code, error->message);
      }
      if (frame->header.request != request) {
        return give_up(corruption("a reply to request " + std::to_string(frame->header.request) +
                                  ", expected " + std::to_string(request)));
      }
      return std::move(*frame);
    }
    if (!parser_.error().ok()) return give_up(parser_.error());
    if (const FrameHeader* large = parser_.awaiting()) {
      body_ = bodies_->take(large->length);
      parser_.use_buffer({body_.get(), large->length});
      continue;
    }
    KV_RETURN_IF_ERROR(read_some(deadline));
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
