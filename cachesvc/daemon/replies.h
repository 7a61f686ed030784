// Replies: the frames that answer a connection's requests: one for each, within its type's limit,
// or an error in its place. What is unsent beyond kMaxUnchargedReplyBytes has room in the RAM
// ledger until it is sent.
//
// Requests calls; replies of fetches are many frames (FetchReplies). Nothing happens once the
// connection is closed. Loop thread only. PROTOCOL.md, "Messages".
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/connection.h"

namespace kv {

/// A request's frame, with the charges of its body, if it has any.
struct InFrame {
  Frame frame;
  std::shared_ptr<RoomCharges> room;
};

class Replies {
 public:
  /// `ns`: whose room it is; the connection's, empty before the hello. All outlive the replies.
  Replies(Connection& to, CacheCore& core, const std::string& ns) : to_(to), core_(core), ns_(ns) {}
  Replies(const Replies&) = delete;  // calls point here
  Replies& operator=(const Replies&) = delete;

  /// The callback of a call that gives its reply.
  template <typename T>
  Done<Result<T>> of(const InFrame& in, FrameType type) {
    return [this, keep = to_.keep(), request = in.frame.header.request, type,
            room = in.room](Result<T> result) {
      if (to_.closed()) return;
      if (!result.ok()) return send_error(to_, request, result.status());
      send_reply(request, type, *result);
    };
  }
  /// The callback of a call that gives the reply or its one field.
  template <typename Reply, typename T>
  Done<Result<T>> of_field(const InFrame& in, FrameType type) {
    return [done = of<Reply>(in, type)](Result<T> result) {
      if (!result.ok()) return done(result.status());
      done(Reply{std::move(*result)});
    };
  }
  /// The callback of a call that gives nothing but its success.
  Done<Status> acknowledge(uint64_t request, FrameType type);

 private:
  template <typename T>
  void send_reply(uint64_t request, FrameType type, const T& message) {
    const uint64_t bytes = expected_bytes(message);
    std::shared_ptr<const void> room;
    if (!take_room(bytes, room)) return refuse(request, type, bytes);
    send_within(request, type, reply_frame(type, request, message), std::move(room));
  }
  // Bytes of a reply before it is encoded, where a client decides how long it is.
  template <typename T>
  static uint64_t expected_bytes(const T&) {
    return 0;
  }
  static uint64_t expected_bytes(const OpenReply& reply);
  bool take_room(uint64_t bytes, std::shared_ptr<const void>& room);
  void refuse(uint64_t request, FrameType type, uint64_t bytes);
  void send_within(uint64_t request, FrameType type, OutFrame frame,
                   std::shared_ptr<const void> room);

  Connection& to_;
  CacheCore& core_;
  const std::string& ns_;
};

}  // namespace kv
