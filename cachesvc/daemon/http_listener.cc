// Listening and admitting.
#include "cachesvc/daemon/http_listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>

#include "cachesvc/daemon/socket_place.h"

namespace kv {

HttpListener::HttpListener(boost::asio::io_context& io, Host& host, CacheCore& core,
                           EventLog& events, Turns& turns, const ServerOptions& options)
    : host_(host),
      shared_{core,
              options,
              events,
              turns,
              [this](ServerConnection& connection, std::string_view why) {
                host_.closed(connection, why);
              },
              HttpRoutes(core, options)},
      local_(io, turns, events, [this](auto socket) { admit(std::move(socket)); }),
      tcp_(io, turns, events, [this](auto socket) { admit(std::move(socket)); }) {}

Status HttpListener::listen() {
  return shared_.options.http.socket.empty() ? listen_at_address() : listen_at_path();
}

Status HttpListener::listen_at_path() {
  const std::string& path = shared_.options.http.socket;
  KV_RETURN_IF_ERROR(prepare_socket_place("server.http.listen", path, false));
  boost::system::error_code ec;
  auto& socket = local_.socket();
  socket.open(Local(), ec);
  const mode_t before = ::umask(0177);  // the socket is 0600 from its first moment
  if (!ec) socket.bind(Local::endpoint(path), ec);
  ::umask(before);
  if (!ec) socket.listen(boost::asio::socket_base::max_listen_connections, ec);
  if (ec) return {StatusCode::io_error, "server.http.listen: " + path + ": " + ec.message()};
  local_.begin();
  return {};
}

Status HttpListener::listen_at_address() {
  const TcpAddress& at = shared_.options.http.address;
  boost::system::error_code ec;
  auto& socket = tcp_.socket();
  socket.open(Tcp::v4(), ec);
  if (!ec) socket.set_option(boost::asio::socket_base::reuse_address(true), ec);
  if (!ec) socket.bind(Tcp::endpoint(boost::asio::ip::address_v4(at.ip), at.port), ec);
  if (!ec) socket.listen(boost::asio::socket_base::max_listen_connections, ec);
  if (ec) {
    return {StatusCode::io_error,
            "server.http.listen: " + format_address(at) + ": " + ec.message()};
  }
  tcp_.begin();
  return {};
}

void HttpListener::stop() {
  if (local_.taking()) ::unlink(shared_.options.http.socket.c_str());
  local_.stop();
  tcp_.stop();
}

void HttpListener::admit(FrameSender::Socket socket) {
  Result<std::shared_ptr<const void>> room =
      Status(StatusCode::busy, "http: " + std::to_string(kMaxHttpConnections) + " connections");
  if (shared_.connections < kMaxHttpConnections) room = host_.make_room();
  if (!room.ok()) {
    const std::string full = http_bytes(http_error(room.status()), false, false);
    (void)!::send(socket.native_handle(), full.data(), full.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shared_.events.on(kRefusedFull, "http: " + room.status().message(), 1,
                      FrameSender::Clock::now());
    return;
  }
  host_.add(std::make_shared<HttpSession>(shared_, std::move(socket), host_.next_number(),
                                          std::move(*room)));
}

}  // namespace kv
