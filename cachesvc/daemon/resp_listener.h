// RespListener: the RESP port, a TCP socket on which programs made for Redis keep values by key in
// one namespace (OPERATING.md, "The RESP port"). Its connections count among the server's. Loop
// thread only.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <functional>
#include <memory>

#include "cachesvc/daemon/acceptor.h"
#include "cachesvc/daemon/resp_session.h"

namespace kv {

class RespListener {
 public:
  /// The owner of the connections. It outlives the listener.
  class Host {
   public:
    /// Room for one more connection; null: it needs none. Returns: busy.
    virtual Result<std::shared_ptr<const void>> make_room() = 0;
    virtual uint64_t next_number() = 0;
    virtual void add(std::shared_ptr<ServerConnection> connection) = 0;
    virtual void closed(ServerConnection& connection, std::string_view why) = 0;

   protected:
    ~Host() = default;
  };

  RespListener(boost::asio::io_context& io, Host& host, CacheCore& core, EventLog& events,
               Turns& turns, const ServerOptions& options);
  RespListener(const RespListener&) = delete;  // handlers point here
  RespListener& operator=(const RespListener&) = delete;

  /// Returns: io_error (the address).
  Status listen();
  void stop() { acceptor_.stop(); }

 private:
  void admit(FrameSender::Socket socket);

  Host& host_;
  RespHost shared_;
  Acceptor<boost::asio::ip::tcp> acceptor_;
};

}  // namespace kv
