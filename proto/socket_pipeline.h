// SocketPipeline: many requests on one connection at a time, none waiting for the one before it.
//
// Frames are sent as far as the service takes them (max_in_flight of hello_ok) and replies are read
// meanwhile, in whatever order they come: neither side can wait for the other. One thread.
#pragma once

#include <functional>
#include <vector>

#include "proto/socket_connection.h"

namespace kv {

class SocketPipeline {
 public:
  /// A frame of the reply to the request of that place, or its error. True: it was the last one, as
  /// an error always is.
  using Take = std::function<bool(size_t place, const Result<Frame>& frame)>;

  explicit SocketPipeline(SocketConnection& connection)
      : connection_(connection), first_(connection.next_request()) {}
  /// The id of the next add(); the connection gives out no others meanwhile.
  uint64_t next_id() const { return first_ + frames_.size(); }
  void add(OutFrame frame);
  /// Ends once every request has its last frame. After a stop those not sent yet are `cancelled`
  /// here, the others by the service. Returns: what breaks the connection, with requests left
  /// unanswered.
  Status run(const Take& take, Deadline deadline);
  bool answered(size_t place) const { return answered_[place]; }

 private:
  bool may_send() const;
  bool send_more();
  void drop_unsent(const Take& take);
  Status cancel_sent(Deadline deadline);
  Result<bool> take_arrived(const Take& take);

  SocketConnection& connection_;
  const uint64_t first_;
  std::vector<OutFrame> frames_;
  std::vector<bool> answered_;
  size_t sent_ = 0, done_ = 0;  ///< requests
  uint64_t offset_ = 0;         ///< bytes sent of the current request
  Status closed_;               ///< reason why nothing more can be sent
  bool stopped_ = false;        ///< the stop of the call is taken in
  bool cancels_ = false;        ///< the requests sent are to be cancelled
};

}  // namespace kv
