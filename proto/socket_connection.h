// SocketConnection: one Unix-socket connection of a client: whole frames out and in, by a deadline.
//
// Any failure of the stream itself (closed, out of step, too late) breaks the connection for good:
// broken() says so and the caller drops it. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "proto/message.h"

namespace kv {

class SocketConnection {
 public:
  /// Connects and says hello. Returns: unavailable (nobody listens), deadline_exceeded, what the
  /// service answered, or what decoding found.
  static Result<std::shared_ptr<SocketConnection>> open(const std::string& path,
                                                        const std::string& ns,
                                                        const std::string& program,
                                                        Deadline deadline);
  ~SocketConnection();
  SocketConnection(const SocketConnection&) = delete;  // owns the descriptor
  SocketConnection& operator=(const SocketConnection&) = delete;

  /// True if the peer has closed or said something unasked: checked before a reuse.
  bool stale() const;
  bool broken() const { return broken_; }
  const HelloReply& hello() const { return hello_; }
  uint64_t next_request() { return ++last_request_; }

  /// Returns: deadline_exceeded, unavailable; or the error that the peer sent before it closed.
  Status send(const OutFrame& frame, Deadline deadline);
  /// The next frame of the reply to `request`; an error frame becomes its status. Returns:
  /// deadline_exceeded, unavailable, corruption, what FrameParser says, or the service's error.
  Result<Frame> receive(uint64_t request, Deadline deadline);
  /// send, then receive of one frame of type `expected`.
  Result<Frame> call(const OutFrame& frame, uint64_t request, FrameType expected,
                     Deadline deadline);
  /// Breaks the connection, because what it said can't be used.
  Status give_up(Status status);

  /// Handles of this connection, by the client's own. Kept here because they end with it.
  std::map<uint32_t, uint32_t> models;

 private:
  explicit SocketConnection(int fd) : fd_(fd) {}
  Status wait(short events, Deadline deadline);
  Status read_some(Deadline deadline);

  int fd_;
  bool broken_ = false;
  uint64_t last_request_ = 0;
  HelloReply hello_;
  FrameParser parser_;
};

}  // namespace kv
