// HttpSession: one connection of the HTTP port: its limits, its state, and its end.
//
//   open ──an answer that ends it, finish(), or a refusal──> finishing ──all is sent──> closed
//   any ──the peer goes, stops or dribbles, or has nothing to do for long──> closed
//
// Requests are answered one after the other, in their order; pipelined ones wait. It takes no
// session of the core but for a verb. Bounded: heads and bodies (HttpParser), unsent bytes (one
// answer, in the RAM ledger if it is long), time to the first request, time without progress, time
// without a request. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cachesvc/daemon/event_log.h"
#include "cachesvc/daemon/http_receiver.h"
#include "cachesvc/daemon/http_routes.h"
#include "cachesvc/daemon/server_connection.h"
#include "cachesvc/daemon/turns.h"

namespace kv {

/// The port that its connections share. It outlives them.
struct HttpHost {
  CacheCore& core;
  const ServerOptions& options;
  EventLog& events;
  Turns& turns;
  /// Called once, when the session closes; `why` is for the log.
  std::function<void(ServerConnection&, std::string_view why)> closed;
  HttpRoutes routes;
  size_t connections = 0;
};

class HttpSession final : public std::enable_shared_from_this<HttpSession>,
                          public ServerConnection,
                          HttpReceiver::Host,
                          FrameSender::Host {
 public:
  using Socket = FrameSender::Socket;
  using Clock = FrameSender::Clock;

  /// `room` has kSessionBytes, or is null: it has none.
  HttpSession(HttpHost& host, Socket socket, uint64_t number, std::shared_ptr<const void> room);
  ~HttpSession() override;
  HttpSession(const HttpSession&) = delete;  // handlers point here
  HttpSession& operator=(const HttpSession&) = delete;

  void start() override;
  void close(std::string_view why) override;
  void finish() override;
  void check(Clock::time_point now) override;
  uint64_t number() const override { return number_; }
  bool paid() const override { return room_ != nullptr; }
  std::string peer() const override { return "http"; }

 private:
  enum class State : uint8_t { open, finishing, closed };

  // Called by all.
  std::shared_ptr<void> keep() override { return shared_from_this(); }
  bool closed() const override { return state_ == State::closed; }
  void take_turn(std::function<void()> turn) override;
  bool others_wait() const override { return !host_.turns.none_waits(); }
  // Called by the receiver.
  bool may_read() const override { return state_ == State::open && !busy_ && sender_.empty(); }
  void received(HttpRequest request) override;
  void ask_for_staging(uint64_t, StagingFor, Done<Result<Staging>>) override {}
  void refuse(const Status& status) override;
  // Called by the sender.
  void reply_sent() override {}
  void turn_over() override;

  void answer(HttpReply reply);

  HttpHost& host_;
  Socket socket_;
  const uint64_t number_;
  const std::shared_ptr<const void> room_;
  State state_ = State::open;
  bool busy_ = false;                      // a request is under way
  bool greeted_ = false;                   // a request came
  bool only_head_ = false, keeps_ = true;  // of the request under way
  const Clock::time_point accepted_ = Clock::now();
  FrameSender sender_;
  HttpReceiver receiver_;
};

}  // namespace kv
