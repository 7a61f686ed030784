// RespConnection: what a command needs of the connection that it came by, and how it is answered.
// RespSession is one. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "proto/frame.h"
#include "proto/resp.h"

namespace kv {

inline constexpr std::string_view kRespFull = "ERR max number of clients reached";

class RespConnection {
 public:
  virtual std::shared_ptr<void> keep() = 0;  ///< alive while a call is under way
  virtual bool closed() const = 0;
  /// Runs `turn` later, when it is the connection's turn.
  virtual void take_turn(std::function<void()> turn) = 0;
  virtual void answer(OutFrame reply) = 0;  ///< of the command under way; then comes the next
  /// Takes no more commands: closes once the answer is sent. Comes before answer().
  virtual void last_command() = 0;
  virtual void close(std::string_view why) = 0;
  /// Begins the core's session, if there is none yet. Returns: as CacheCore::connect.
  virtual Status enter() = 0;
  virtual uint64_t session() const = 0;  ///< the core's; 0: no password came yet
  virtual uint64_t number() const = 0;
  virtual size_t connections() const = 0;  ///< of the port
  // Told in the log, and counted.
  virtual void refused_password() = 0;
  virtual void dropped_value() = 0;

 protected:
  ~RespConnection() = default;
};

inline void resp_reply(RespConnection& to, RespWriter out) {
  OutFrame frame;
  frame.head = out.take();
  to.answer(std::move(frame));
}
inline void resp_ok(RespConnection& to) {
  RespWriter out;
  out.simple("OK");
  resp_reply(to, std::move(out));
}
inline void resp_integer(RespConnection& to, uint64_t value) {
  RespWriter out;
  out.integer(value);
  resp_reply(to, std::move(out));
}
inline void resp_error(RespConnection& to, std::string_view text) {
  RespWriter out;
  out.error(text);
  resp_reply(to, std::move(out));
}

}  // namespace kv
