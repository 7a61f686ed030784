// Server: the Unix socket of the service, perhaps a RESP and an HTTP port beside it, and
// their connections.
//
// The socket is 0600 in a directory that nobody else may write, a lock file beside it says whose it
// is, and a peer must be one whom the Gate lets in (with other users than our own and root the
// socket is 0666: the kernel's word on the peer's user decides, not the mode). Bounded:
// connections, and everything that Session bounds. Loop thread only; the io_context has one run().
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <map>
#include <memory>

#include "cachesvc/daemon/acceptor.h"
#include "cachesvc/daemon/gate.h"
#include "cachesvc/daemon/http_listener.h"
#include "cachesvc/daemon/resp_listener.h"
#include "cachesvc/daemon/session.h"
#include "cachesvc/loop/timer.h"

namespace kv {

class Server final : public RespListener::Host {
 public:
  /// `io`, `core` and `events`, which tells connections refused and models opened, outlive the
  /// server.
  Server(boost::asio::io_context& io, CacheCore& core, EventLog& events, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;  // handlers point here
  Server& operator=(const Server&) = delete;

  /// Takes the socket's place and listens, or goes on listening on the one that the options pass. A
  /// socket file that nobody listens on is replaced if it is ours. Returns: busy (another service
  /// is there), invalid_argument (path, directory), io_error.
  Status listen();
  /// Users, tokens and namespaces of `options` from now on: of connections that come, and of those
  /// without a hello. Returns: unsupported, with nothing changed: users beside our own are let in
  /// now and were not before, or the reverse, which is the socket's mode.
  Status admit_by(const ServerOptions& options);
  /// Takes no more connections and removes the socket file. The HTTP port answers until finish().
  void stop_accepting();
  /// Lets sessions send what they owe and closes them; `done` once, when none is left or at
  /// `deadline`.
  void finish(Deadline deadline, std::function<void()> done);

 private:
  using Protocol = boost::asio::local::stream_protocol;
  Status take_place();
  Status bind_place();
  Status take_listening();
  void admit(FrameSender::Socket socket);
  void refuse(int fd, const Status& status);
  Result<uint32_t> check_peer(int fd) const;
  Status check_guest(uint32_t user) const;
  void sweep();
  void retire_segments(SegmentStore& segments);
  void sweep_later();
  void close_all();
  void check_finished();
  // Called by the listener too.
  Result<std::shared_ptr<const void>> make_room() override;
  uint64_t next_number() override { return ++last_number_; }
  void add(std::shared_ptr<ServerConnection> connection) override;
  void closed(ServerConnection& connection, std::string_view why) override;

  const ServerOptions options_;
  EventLog& events_;
  Gate gate_;
  CodingLog codings_;
  SessionHost host_;
  Acceptor<Protocol> acceptor_;
  const std::unique_ptr<RespListener> resp_;  ///< null: there is none
  const std::unique_ptr<HttpListener> http_;  ///< null: there is none
  Timer sweep_timer_, finish_timer_;
  std::map<uint64_t, std::shared_ptr<ServerConnection>> connections_;
  uint64_t last_number_ = 0;
  int lock_fd_ = -1;
  std::function<void()> finished_;
};

}  // namespace kv
