// FrameReceiver: a connection's frames on their way in. Loop thread only.
#pragma once

#include <optional>

#include "cachesvc/daemon/peer_memory.h"
#include "cachesvc/daemon/stream_receiver.h"
#include "proto/descriptor_queue.h"
#include "proto/frame.h"

namespace kv {

/// Request bodies above this are charged to the RAM ledger before they are taken. Uncharged bodies
/// under way take at most twice as much together.
inline constexpr uint64_t kMaxUnchargedBytes = 32u << 10;

class FrameReceiver final : public StreamReceiver<FrameParser> {
 public:
  /// The connection, and what frames alone need of it.
  class Host : public StreamReceiver::Host {
   public:
    virtual bool none_in_flight() const = 0;
    /// A whole frame. `room` has its body's charges, if it has any; `dropped`: why there is none.
    virtual void received(Frame frame, std::shared_ptr<RoomCharges> room, Status dropped) = 0;

   protected:
    ~Host() = default;
  };

  FrameReceiver(Host& host, Socket& socket, uint64_t max_put_bytes);

  void greeted() { parser_.set_greeted(true); }
  /// From now on descriptors that come beside bytes are kept, for take_descriptor(); before, the
  /// kernel closes them.
  void keep_descriptors() { descriptors_.emplace(kMaxWaitingDescriptors); }
  /// The one that came first, the caller's from now on; -1: none.
  int take_descriptor() { return descriptors_ ? descriptors_->take() : -1; }

 private:
  void hand_on(Frame frame) override;
  void find_place() override;
  ssize_t receive(int socket, std::span<uint8_t> to) override;

  Host& host_;
  std::optional<DescriptorQueue> descriptors_;
  uint64_t uncharged_bytes_ = 0;  ///< bodies taken since none was in flight
};

}  // namespace kv
