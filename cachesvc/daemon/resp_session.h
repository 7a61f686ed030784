// RespSession: one connection of the RESP port: its limits, its state, and its end.
//
//   open ──QUIT, finish(), or a refusal──> finishing ──all is sent──> closed
//   any ──the peer goes, stops or dribbles──> closed
//
// It has a session of the core from the start, or, where there is a password, once that came.
// Commands are answered one after the other, in their order; those that wait lie in the socket.
// Bounded: every length, unsent bytes, time without progress, time without a password. A connection
// with nothing to do stays, as with Redis: its clients don't expect its end. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/resp_commands.h"
#include "cachesvc/daemon/resp_receiver.h"
#include "cachesvc/daemon/server_connection.h"
#include "cachesvc/daemon/turns.h"

namespace kv {

/// The port that its connections share. It outlives them.
struct RespHost {
  CacheCore& core;
  const ServerOptions& options;
  EventLog& events;
  Turns& turns;
  /// Called once, when the session closes; `why` is for the log.
  std::function<void(ServerConnection&, std::string_view why)> closed;
  RespHolds holds;
  RespCounts counts;
  size_t connections = 0;
};

class RespSession final : public std::enable_shared_from_this<RespSession>,
                          public ServerConnection,
                          RespReceiver::Host,
                          FrameSender::Host,
                          RespConnection {
 public:
  using Socket = FrameSender::Socket;
  using Clock = FrameSender::Clock;

  /// `room` has kSessionBytes, or is null: it has none.
  RespSession(RespHost& host, Socket socket, uint64_t number, std::shared_ptr<const void> room);
  ~RespSession() override;
  RespSession(const RespSession&) = delete;  // handlers point here
  RespSession& operator=(const RespSession&) = delete;

  void start() override;
  void close(std::string_view why) override;
  void finish() override;
  void check(Clock::time_point now) override;
  uint64_t number() const override { return number_; }
  bool paid() const override { return room_ != nullptr; }
  std::string peer() const override { return "resp"; }

 private:
  enum class State : uint8_t { open, finishing, closed };

  // Called by all.
  std::shared_ptr<void> keep() override { return shared_from_this(); }
  bool closed() const override { return state_ == State::closed; }
  void take_turn(std::function<void()> turn) override;
  bool others_wait() const override { return !host_.turns.none_waits(); }
  // Called by the receiver.
  bool may_read() const override;
  void received(RespRequest request) override;
  void ask_for_staging(uint64_t bytes, StagingFor use, Done<Result<Staging>> done) override;
  void refuse(const Status& status) override;
  // Called by the sender.
  void reply_sent() override {}
  void turn_over() override;
  // Called by the commands.
  void answer(OutFrame reply) override;
  void last_command() override;
  Status enter() override;
  uint64_t session() const override { return session_; }
  void refused_password() override;
  void dropped_value() override;
  size_t connections() const override { return host_.connections; }

  RespHost& host_;
  Socket socket_;
  const uint64_t number_;
  const std::shared_ptr<const void> room_;
  State state_ = State::open;
  uint64_t session_ = 0;  // the core's; 0: none yet
  bool busy_ = false;     // a command is under way
  const Clock::time_point accepted_ = Clock::now();
  FrameSender sender_;
  RespReceiver receiver_;
  RespCommands commands_;
};

}  // namespace kv
