// ServerOptions: limits of the socket and its connections. Plain values.
//
// The first group are settings (config_keys.cc); the second has constants: a daemon keeps to them,
// a test may shorten them in its own copy.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cachesvc/cache_options.h"
#include "cachesvc/daemon/config_values.h"
#include "cachesvc/namespace_options.h"

namespace kv {

/// A connection's requests without their last reply byte; hello_ok says so.
inline constexpr uint32_t kMaxInFlight = 16;
/// Body of one put. A model whose blocks are longer is refused when it is opened: it wants fewer
/// tokens a block.
inline constexpr uint64_t kMaxPutBytes = 256ull << 20;
/// Replies that a connection may have queued and still be read.
inline constexpr uint64_t kMaxUnsentBytes = 64ull << 20;
inline constexpr Milliseconds kHandshakeTimeout{5'000};   ///< accept to hello
inline constexpr Milliseconds kProgressTimeout{30'000};   ///< a frame or reply half way, no byte
inline constexpr Milliseconds kIdleTimeout{3'600'000};    ///< no request, no reply owed
inline constexpr Milliseconds kHttpIdleTimeout{300'000};  ///< between two scrapes, say
/// Time without a frame after which a connection's leases are taken back.
inline constexpr Milliseconds kLeaseTimeout{600'000};
inline constexpr Milliseconds kRequestTimeout{600'000};  ///< the longest that a request may wait

/// The RESP port.
struct RespOptions {
  TcpAddress listen;          ///< no port: it is off
  std::string password_file;  ///< path; empty: none
  std::string password;       ///< the file's content; empty: none is asked for. Never in a log
  std::string ns = "resp";    ///< the namespace of all that comes by it
};

/// The HTTP port.
struct HttpOptions {
  std::string listen;      ///< as it was given; empty: the port is off
  std::string socket;      ///< path; empty: it is an address
  TcpAddress address;      ///< of this machine
  std::string token_file;  ///< path; empty: none
  std::string token;       ///< the file's content; empty: none. Never in a log
  bool on() const { return !listen.empty(); }
};

struct ServerOptions {
  std::string socket;  ///< path; its directory is created 0700 (allow_uids: 0711)
  /// A socket that listens there already, opened by a service manager, which keeps its file; the
  /// server closes it. -1: none.
  int listening_fd = -1;
  /// Users that connect beside its own and root, as do those of `namespaces`; any: the socket is
  /// 0666.
  std::vector<uint32_t> allow_uids;
  std::vector<NamespaceRule> namespaces;
  RespOptions resp;
  HttpOptions http;
  uint32_t max_connections = 128;
  Milliseconds drain_timeout{20'000};  ///< SIGTERM to exit

  uint32_t max_in_flight = kMaxInFlight;
  uint64_t max_put_bytes = kMaxPutBytes;
  uint64_t max_unsent_bytes = kMaxUnsentBytes;
  Milliseconds handshake_timeout = kHandshakeTimeout;
  Milliseconds progress_timeout = kProgressTimeout;
  Milliseconds idle_timeout = kIdleTimeout;  ///< 0: never
  Milliseconds http_idle_timeout = kHttpIdleTimeout;
  Milliseconds lease_timeout = kLeaseTimeout;
  Milliseconds request_timeout = kRequestTimeout;
};

}  // namespace kv
