// ServerConnection: a connection as its server sees it, whatever it speaks (Session, RespSession).
// Loop thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cachesvc/daemon/frame_sender.h"

namespace kv {

/// A connection's charge for its uncharged bodies and replies, and for what it reads ahead.
inline constexpr uint64_t kSessionBytes = 128u << 10;

class ServerConnection {
 public:
  virtual ~ServerConnection() = default;

  virtual void start() = 0;
  /// Cuts the connection now.
  virtual void close(std::string_view why) = 0;
  /// Takes no further request; closes once everything owed is sent.
  virtual void finish() = 0;
  /// Closes if a time limit has passed.
  virtual void check(FrameSender::Clock::time_point now) = 0;
  /// Tells a client that has the segment mapped to let it go.
  virtual void revoke(uint32_t) {}

  virtual uint64_t number() const = 0;
  /// The peer's user; none: nobody knows.
  virtual std::optional<uint32_t> user() const { return std::nullopt; }
  virtual bool paid() const = 0;         ///< true if its memory is charged
  virtual std::string peer() const = 0;  ///< for the log
};

}  // namespace kv
