// HttpListener: the HTTP port, a Unix socket (0600) or a TCP address of this machine, for health,
// metrics, the status page and admin verbs (OPERATING.md, "The HTTP port"). Its connections count
// among the server's; of its own it has at most kMaxHttpConnections. Loop thread only.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <memory>

#include "cachesvc/daemon/acceptor.h"
#include "cachesvc/daemon/http_session.h"
#include "cachesvc/daemon/resp_listener.h"

namespace kv {

inline constexpr size_t kMaxHttpConnections = 16;

class HttpListener {
 public:
  /// The owner of the connections. It outlives the listener.
  using Host = RespListener::Host;

  HttpListener(boost::asio::io_context& io, Host& host, CacheCore& core, EventLog& events,
               Turns& turns, const ServerOptions& options);
  HttpListener(const HttpListener&) = delete;  // handlers point here
  HttpListener& operator=(const HttpListener&) = delete;

  /// Returns: io_error (the address), busy, invalid_argument (the path).
  Status listen();
  void stop();

 private:
  using Local = boost::asio::local::stream_protocol;
  using Tcp = boost::asio::ip::tcp;
  void admit(FrameSender::Socket socket);

  Host& host_;
  HttpHost shared_;
  Acceptor<Local> local_;
  Acceptor<Tcp> tcp_;
};

}  // namespace kv
