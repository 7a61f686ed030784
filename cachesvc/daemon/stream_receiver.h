// StreamReceiver: a connection's messages on their way in, some bytes a turn, out of a sans-io
// parser (FrameParser, RespParser, HttpParser).
//
// Bounded: the length of every message, by the parser, and its time. A long body is charged to the
// RAM ledger before its bytes are taken, and received into the pool; without room it is read and
// dropped, and its message comes with the reason. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string_view>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/frame_sender.h"

namespace kv {

template <typename Parser>
class StreamReceiver {
 public:
  using Socket = FrameSender::Socket;
  using Clock = FrameSender::Clock;
  using Message = typename Parser::Message;

  /// The connection. It owns the receiver.
  class Host {
   public:
    virtual std::shared_ptr<void> keep() = 0;  ///< alive while a handler waits
    virtual bool closed() const = 0;
    /// Runs `turn` later, when it is the connection's turn.
    virtual void take_turn(std::function<void()> turn) = 0;
    virtual bool may_read() const = 0;
    /// Asks the core for the room of a body (ClientMemory::allocate_staging).
    virtual void ask_for_staging(uint64_t bytes, StagingFor use, Done<Result<Staging>> done) = 0;
    /// Refuses a stream that is out of step.
    virtual void refuse(const Status& status) = 0;
    virtual void close(std::string_view why) = 0;

   protected:
    ~Host() = default;
  };

  StreamReceiver(const StreamReceiver&) = delete;  // handlers point here
  StreamReceiver& operator=(const StreamReceiver&) = delete;

  /// Reads as much as one turn may.
  void pump();
  /// Goes on after something that stopped it; never recurses into pump.
  void resume();
  void drop() { staging_ = {}; }
  bool at_boundary() const { return parser_.at_boundary(); }
  Clock::time_point last_read() const { return last_read_; }
  /// True if a message stopped half way, or comes too slowly.
  bool stuck(Clock::time_point now, Milliseconds progress_timeout) const;

 protected:
  StreamReceiver(Host& host, Socket& socket) : host_(host), socket_(socket) {}
  ~StreamReceiver() = default;

  virtual void hand_on(Message message) = 0;
  /// Finds a place for the body that the parser awaits, by ask() or skip().
  virtual void find_place() = 0;
  /// As recv(2).
  virtual ssize_t receive(int socket, std::span<uint8_t> to);

  /// Asks for `bytes`, whose last ones are the body's place; without room the body is dropped.
  void ask(uint64_t bytes, StagingFor use);
  void skip(Status why);
  /// The message's body, and why there is none.
  Staging take_staging() { return std::exchange(staging_, {}); }
  Status take_error() { return std::exchange(staging_error_, {}); }

  Parser parser_;

 private:
  void pump_messages();
  void pump_in_turn();
  bool read_some(size_t& budget);

  Host& host_;
  Socket& socket_;
  bool pumping_ = false, armed_ = false;
  bool asking_ = false;   ///< staging was asked for
  Staging staging_;       ///< the body that is arriving
  Status staging_error_;  ///< why it is dropped instead
  Clock::time_point last_read_ = Clock::now(), message_begun_ = last_read_;
};

}  // namespace kv
