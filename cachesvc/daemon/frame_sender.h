// FrameSender: a connection's frames on their way out, sent from where they lie, some bytes a turn.
//
// Unsent frames are queued; the connection limits them by unsent_bytes(). Loop thread only.
#pragma once

#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>

#include "cachesvc/daemon/server_options.h"
#include "proto/message.h"

namespace kv {

/// Bytes that one connection may move before others get their turn.
inline constexpr size_t kTurnBytes = 128u << 10;
/// Bytes that it may send in one turn while no other connection waits for one: a step of the loop
/// costs a few microseconds, whatever it sends.
inline constexpr size_t kLongTurnBytes = 1u << 20;
/// Lowest speed of a frame, and of unsent replies, after progress_timeout; else the connection is
/// cut.
inline constexpr uint64_t kMinBytesPerSecond = 1u << 20;
/// True if `moved_bytes` are behind kMinBytesPerSecond, after a time for their start: a peer that
/// stops or dribbles is told from one that has much to move by what has moved, not by what shall.
inline bool behind(std::chrono::steady_clock::duration took, Milliseconds start,
                   uint64_t moved_bytes) {
  return took > start + Milliseconds(moved_bytes * 1000 / kMinBytesPerSecond);
}

class FrameSender {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using Clock = std::chrono::steady_clock;

  /// The connection. It owns the sender.
  class Host {
   public:
    virtual std::shared_ptr<void> keep() = 0;  ///< alive while a handler waits
    virtual bool closed() const = 0;
    /// Runs `turn` later, when it is the connection's turn.
    virtual void take_turn(std::function<void()> turn) = 0;
    virtual bool others_wait() const = 0;  ///< for a turn
    virtual void reply_sent() = 0;         ///< after the last frame of a reply
    virtual void turn_over() = 0;          ///< after a turn of sending
    virtual void close(std::string_view why) = 0;

   protected:
    ~Host() = default;
  };

  FrameSender(Host& host, Socket& socket) : host_(host), socket_(socket) {}
  FrameSender(const FrameSender&) = delete;  // handlers point here
  FrameSender& operator=(const FrameSender&) = delete;

  /// Appends for flush(), which writes as much as one turn may: all frames of a long reply come
  /// first.
  /// `last`: of its request's reply.
  void queue(OutFrame frame, bool last);
  void flush();
  void drop();  ///< drops all queued frames
  bool empty() const { return out_.empty(); }
  uint64_t unsent_bytes() const { return unsent_bytes_; }
  Clock::time_point last_write() const { return last_write_; }
  /// True if the peer takes nothing, or too slowly.
  bool stuck(Clock::time_point now, Milliseconds progress_timeout) const;

 private:
  struct Outgoing {
    OutFrame frame;
    bool last;
  };
  void turn();
  void turn_later();
  bool write_some(size_t& budget);
  bool may_go_on(size_t& budget);

  Host& host_;
  Socket& socket_;
  std::deque<Outgoing> out_;
  uint64_t unsent_bytes_ = 0, front_sent_ = 0;
  uint64_t sent_since_ = 0;  ///< bytes since something is unsent
  size_t turn_bytes_ = 0;    ///< that this turn may send at most
  bool armed_ = false, flushing_ = false;
  Clock::time_point last_write_ = Clock::now(), unsent_since_ = last_write_;
};

}  // namespace kv
