// Session: one connection of the service: its limits, its state, and its end.
//
//   greeting ──hello──> serving ──finish(), or a refusal──> finishing ──all is sent──> closed
//      └──────────────────a refusal─────────────────────────────┘
//   any ──the peer goes, stops or dribbles──> closed
//
// Frames come in by its FrameReceiver, are answered by its Requests, in the order in which the core
// finishes them, and go out by its FrameSender. Bounded: length of every frame, requests in flight,
// unsent bytes, time without progress. When it closes, for whatever reason, the core forgets its
// reservations. Loop thread only. PROTOCOL.md, "Connections".
#pragma once

#include <unistd.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cachesvc/daemon/frame_receiver.h"
#include "cachesvc/daemon/gate.h"
#include "cachesvc/daemon/requests.h"
#include "cachesvc/daemon/server_connection.h"
#include "cachesvc/daemon/turns.h"
#include "proto/message.h"

namespace kv {

/// A session's server, which outlives it.
struct SessionHost {
  CacheCore& core;
  const ServerOptions& options;
  /// Called once, when the session closes; `why` is for the log.
  std::function<void(ServerConnection&, std::string_view why)> closed;
  CodingLog& codings;
  const Gate& gate;
  EventLog& events;
  std::shared_ptr<Turns> turns;
  std::shared_ptr<MappingPeers> peers;
  size_t memory_peers = 0;  ///< sessions that may hand over memory, at most kMaxMemoryPeers
  BootToken boot{};         ///< this start's
};

class Session final : public std::enable_shared_from_this<Session>,
                      public ServerConnection,
                      FrameReceiver::Host,
                      FrameSender::Host,
                      Requests::Host {
 public:
  using Socket = FrameSender::Socket;
  using Clock = FrameSender::Clock;

  /// `user`: the peer's, by the kernel's word. `room` has kSessionBytes, or is null: it has none.
  Session(SessionHost& host, Socket socket, uint32_t user, uint64_t number,
          std::shared_ptr<const void> room);
  ~Session() override;
  Session(const Session&) = delete;  // handlers point here
  Session& operator=(const Session&) = delete;

  void start() override;
  void close(std::string_view why) override;
  void finish() override;
  void check(Clock::time_point now) override;
  void revoke(uint32_t segment) override { requests_.revoke(segment); }
  Mappings& mappings() { return requests_.mappings(); }

  uint64_t number() const override { return number_; }
  std::optional<uint32_t> guest() const override {
    return user_ == 0 || user_ == ::geteuid() ? std::nullopt : std::optional(user_);
  }
  bool paid() const override { return room_ != nullptr; }
  std::string peer() const override;  ///< namespace, from the hello

 private:
  enum class State : uint8_t { greeting, serving, finishing, closed };
  void move(State to);

  // Called by all three.
  std::shared_ptr<void> keep() override { return shared_from_this(); }
  bool closed() const override { return state_ == State::closed; }
  void take_turn(std::function<void()> turn) override {
    host_.turns->ask(requests_.ns(), std::move(turn));
  }
  bool others_wait() const override { return !host_.turns->none_waits(); }
  // Called by the receiver.
  bool may_read() const override;
  bool none_in_flight() const override { return in_flight_ == 0; }
  void received(Frame frame, std::shared_ptr<RoomCharges> room, Status dropped) override;
  void ask_for_staging(uint64_t bytes, StagingFor use, Done<Result<Staging>> done) override;
  void refuse(const Status& status) override;
  // Called by the sender.
  void reply_sent() override { --in_flight_; }
  void turn_over() override;
  // Called by the requests.
  FrameSender& out() override { return sender_; }
  Result<uint64_t> enter(const HelloRequest& hello) override;
  bool may_map() override;
  bool may_offer_memory() override;
  int take_descriptor() override { return receiver_.take_descriptor(); }
  void greeted() override;
  void last_request() override;

  SessionHost& host_;
  Socket socket_;
  const uint32_t user_;
  const uint64_t number_;
  const std::shared_ptr<const void> room_;
  State state_ = State::greeting;
  std::shared_ptr<MappingPeer> peer_;  // its process, if it may map segments
  bool offers_memory_ = false;         // counted in host_.memory_peers
  size_t in_flight_ = 0;
  const Clock::time_point accepted_ = Clock::now();
  FrameSender sender_;
  FrameReceiver receiver_;
  Requests requests_;
};

}  // namespace kv
