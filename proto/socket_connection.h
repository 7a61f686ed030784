// SocketConnection: one Unix-socket connection of a client: whole frames out and in, by a deadline.
//
// Any failure of the stream itself (closed, out of step, too late) breaks the connection for good:
// broken() says so and the caller drops it. A stop breaks nothing: what is on its way is cancelled
// and its answer read. One thread at a time.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "memory/slab_store.h"
#include "proto/message.h"
#include "proto/own_memory.h"
#include "proto/segment_link.h"
#include "proto/stop_wake.h"

namespace kv {

/// Memory of large replies, used again once nobody holds their bytes: fresh pages would cost a
/// fetch more than the socket does. Shared by a client's connections; any thread.
class ReplyBodies : public std::enable_shared_from_this<ReplyBodies> {
 public:
  /// Bodies of at most `keep_bytes` wait for reuse.
  explicit ReplyBodies(uint64_t keep_bytes) : keep_bytes_(keep_bytes) {}
  /// Takes at least `size` bytes, uninitialised; they come back when the last copy of the owner
  /// goes.
  std::shared_ptr<uint8_t> take(uint64_t size);
  uint64_t waiting_bytes() const { return store_.bytes(); }

 private:
  const uint64_t keep_bytes_;
  SlabStore store_{Pages::small};  // a first reply waits for no huge page
};

class SocketConnection {
 public:
  /// Connects and says `hello`. Returns: unavailable (nobody listens), deadline_exceeded, what the
  /// service answered, or what decoding found.
  static Result<std::shared_ptr<SocketConnection>> open(const std::string& path,
                                                        const HelloRequest& hello,
                                                        std::shared_ptr<ReplyBodies> bodies,
                                                        Deadline deadline);
  ~SocketConnection();
  SocketConnection(const SocketConnection&) = delete;  // owns the descriptor
  SocketConnection& operator=(const SocketConnection&) = delete;

  /// True if the peer has closed or said something that no client understands unasked: checked
  /// before a reuse. Takes announced and revoked segments.
  bool stale();
  bool broken() const { return broken_; }
  const HelloReply& hello() const { return hello_; }
  /// True if both sides know segments: fetches may be mapped.
  bool maps_segments() const { return segments_.enabled(); }
  /// Offers the memory, if that was not done on this connection. Returns: its number here; 0: the
  /// service takes none, so rows are sent. What breaks the connection.
  Result<uint32_t> offer(const std::shared_ptr<OwnMemory>& memory, Deadline deadline);
  SegmentMap& segments() { return segments_.map(); }
  /// Bytes of frames that the service has to have before its next request.
  std::vector<uint8_t> owed() { return segments_.owed(); }
  uint64_t next_request() { return ++last_request_; }
  /// The stop of the calls from begin() until end(). One that can be asked for takes a descriptor.
  StopWake& stop() { return stop_; }

  /// Returns: deadline_exceeded, unavailable, cancelled (before anything is sent); or the error
  /// that the peer sent before it closed.
  Status send(const OutFrame& frame, Deadline deadline);
  /// The next frame of the reply to `request`; an error frame becomes its status. Returns:
  /// deadline_exceeded, unavailable, corruption, what FrameParser says, or the service's error.
  Result<Frame> receive(uint64_t request, Deadline deadline);
  /// send, then receive of one frame of type `expected`.
  Result<Frame> call(const OutFrame& frame, uint64_t request, FrameType expected,
                     Deadline deadline);
  /// Breaks the connection, because what it said can't be used.
  Status give_up(Status status);

  // Steps of the above, for several requests at a time (proto/socket_pipeline.h).
  /// Bytes of the frame from byte `from` on that the socket took now; 0: none. Returns:
  /// unavailable; what came may still be read then.
  Result<uint64_t> send_some(const OutFrame& frame, uint64_t from);
  /// A frame that is here whole. Returns: as receive, but for errors that are replies.
  Result<std::optional<Frame>> arrived();
  /// Tells the service that these requests are no longer wanted; no frame is sent in part. Returns:
  /// as send.
  Status cancel(std::span<const uint64_t> requests, Deadline deadline);
  /// Waits until something may be read or, with `to_send`, written, or the stop is asked for.
  /// Returns: deadline_exceeded.
  Status wait_for_peer(bool to_send, Deadline deadline);
  /// The frame as a reply to `request`. Returns: as receive.
  Result<Frame> reply_of(uint64_t request, Frame frame);
  /// Breaks the connection, because of a frame of a request that is not open. Returns: what an
  /// error says of the connection, corruption.
  Status out_of_step(const Frame& frame, uint64_t expected);

  /// Handles of this connection, by the client's own. Kept here because they end with it.
  std::map<uint32_t, uint32_t> models;

 private:
  SocketConnection(int fd, std::shared_ptr<ReplyBodies> bodies)
      : fd_(fd), bodies_(std::move(bodies)) {}
  Status wait(short events, Deadline deadline);
  Status send_all(const OutFrame& frame, Deadline deadline);
  Result<bool> read_some();
  Status last_words(Status closed, Deadline deadline);

  int fd_;
  bool broken_ = false;
  bool amid_frame_ = false;  // a part of a frame is sent
  uint64_t last_request_ = 0;
  HelloReply hello_;
  FrameParser parser_;
  const std::shared_ptr<ReplyBodies> bodies_;
  std::shared_ptr<uint8_t> body_;  // body of the large frame that is arriving
  SegmentLink segments_;
  StopWake stop_;
  bool takes_memory_ = false;         // the service has granted it, and not refused since
  bool offered_ = false;              // the memory of all its calls, under number 1
  const pid_t process_ = ::getpid();  // whose mappings they are
};

}  // namespace kv
