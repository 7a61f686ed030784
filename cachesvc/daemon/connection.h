// Connection: what an answer needs of the connection that it goes to. Session is one. Loop thread
// only.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "cachesvc/daemon/frame_sender.h"
#include "proto/message.h"

namespace kv {

class Connection {
 public:
  virtual std::shared_ptr<void> keep() = 0;  ///< alive while a call is under way
  virtual bool closed() const = 0;
  virtual FrameSender& out() = 0;
  /// Runs `turn` later, when it is the connection's turn.
  virtual void take_turn(std::function<void()> turn) = 0;

 protected:
  ~Connection() = default;
};

/// Nothing happens if it is closed. `last`: of its request.
inline void send(Connection& to, OutFrame frame, bool last) {
  if (to.closed()) return;
  to.out().queue(std::move(frame), last);
  to.out().flush();
}
inline void send_error(Connection& to, uint64_t request, const Status& status) {
  send(to, error_frame(request, status), true);
}

}  // namespace kv
