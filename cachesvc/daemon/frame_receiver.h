// FrameReceiver: a connection's frames on their way in, some bytes a turn.
//
// Bounded: the length of every frame, and its time. A long body is charged to the RAM ledger before
// its bytes are taken, and received into the pool; without room it is read and dropped, and its
// frame comes with the reason. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "cachesvc/core/cache_core.h"
#include "cachesvc/daemon/frame_sender.h"
#include "cachesvc/daemon/peer_memory.h"
#include "proto/descriptor_queue.h"

namespace kv {

/// Request bodies above this are charged to the RAM ledger before they are taken. Uncharged bodies
/// under way take at most twice as much together.
inline constexpr uint64_t kMaxUnchargedBytes = 32u << 10;

class FrameReceiver {
 public:
  using Socket = FrameSender::Socket;
  using Clock = FrameSender::Clock;

  /// The connection. It owns the receiver.
  class Host {
   public:
    virtual std::shared_ptr<void> keep() = 0;  ///< alive while a handler waits
    virtual bool closed() const = 0;
    /// Runs `turn` later, when it is the connection's turn.
    virtual void take_turn(std::function<void()> turn) = 0;
    virtual bool may_read() const = 0;
    virtual bool none_in_flight() const = 0;
    /// A whole frame. `room` has its body's charges, if it has any; `dropped`: why there is none.
    virtual void received(Frame frame, std::shared_ptr<RoomCharges> room, Status dropped) = 0;
    /// Asks the core for the room of a body (ClientMemory::allocate_staging).
    virtual void ask_for_staging(uint64_t bytes, StagingFor use, Done<Result<Staging>> done) = 0;
    /// Refuses a stream that is out of step.
    virtual void refuse(const Status& status) = 0;
    virtual void close(std::string_view why) = 0;

   protected:
    ~Host() = default;
  };

  FrameReceiver(Host& host, Socket& socket, uint64_t max_put_bytes);
  FrameReceiver(const FrameReceiver&) = delete;  // handlers point here
  FrameReceiver& operator=(const FrameReceiver&) = delete;

  /// Reads as much as one turn may.
  void pump();
  /// Goes on after something that stopped it; never recurses into pump.
  void resume();
  void greeted() { parser_.set_greeted(true); }
  /// From now on descriptors that come beside bytes are kept, for take_descriptor(); before, the
  /// kernel closes them.
  void keep_descriptors() { descriptors_.emplace(kMaxWaitingDescriptors); }
  /// The one that came first, the caller's from now on; -1: none.
  int take_descriptor() { return descriptors_ ? descriptors_->take() : -1; }
  void drop() { staging_ = {}; }
  bool at_boundary() const { return parser_.at_boundary(); }
  Clock::time_point last_read() const { return last_read_; }
  /// True if a frame stopped half way, or comes too slowly.
  bool stuck(Clock::time_point now, Milliseconds progress_timeout) const;

 private:
  void pump_frames();
  void pump_in_turn();
  void hand_on(Frame frame);
  bool read_some(size_t& budget);
  void ask_for_staging();
  void take_staging(Result<Staging> buffer);

  Host& host_;
  Socket& socket_;
  FrameParser parser_;
  std::optional<DescriptorQueue> descriptors_;
  bool pumping_ = false, armed_ = false;
  bool asking_ = false;           ///< staging was asked for
  Staging staging_;               ///< the body that is arriving
  Status staging_error_;          ///< why it is dropped instead
  uint64_t uncharged_bytes_ = 0;  ///< bodies taken since none was in flight
  Clock::time_point last_read_ = Clock::now(), frame_begun_ = last_read_;
};

}  // namespace kv
