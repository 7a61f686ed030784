// Session: one connection of the service: its limits, its state, and its end.
//
//   greeting ──hello──> serving ──finish(), or a refusal──> finishing ──all is sent──> closed
//      └──────────────────a refusal─────────────────────────────┘
//   any ──the peer goes, stops or dribbles──> closed
//
// Frames come in by its FrameReceiver, are answered by its Requests, in the order in which the core
// finishes them, and go out by its FrameSender. Bounded: length of every frame, requests in flight,
// unsent bytes, time without progress. When it closes, for whatever reason, its SessionPeer leaves.
// Loop thread only. PROTOCOL.md, "Connections".
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "cachesvc/daemon/frame_receiver.h"
#include "cachesvc/daemon/requests.h"
#include "cachesvc/daemon/session_peer.h"
#include "proto/message.h"

namespace kv {

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
  std::optional<uint32_t> user() const override { return peer_.user(); }
  bool paid() const override { return room_ != nullptr; }
  std::string peer() const override;  ///< namespace, from the hello

 private:
  enum class State : uint8_t { greeting, serving, finishing, closed };
  void move(State to);

  // Called by all three.
  std::shared_ptr<void> keep() override { return shared_from_this(); }
  bool closed() const override { return state_ == State::closed; }
  void take_turn(std::function<void()> turn) override {
    host_.turns->ask(peer_.ns(), std::move(turn));
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
  int take_descriptor() override { return receiver_.take_descriptor(); }
  void greeted(bool keep_descriptors) override;
  void last_request() override;

  SessionHost& host_;
  Socket socket_;
  const uint64_t number_;
  const std::shared_ptr<const void> room_;
  State state_ = State::greeting;
  size_t in_flight_ = 0;
  const Clock::time_point accepted_ = Clock::now();
  SessionPeer peer_;
  FrameSender sender_;
  FrameReceiver receiver_;
  Requests requests_;
};

}  // namespace kv
