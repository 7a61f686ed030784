// Listening and admitting.
#include "cachesvc/daemon/http_listener.h"

#include <sys/socket.h>
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
  constexpr const char* kSetting = "server.http.listen";
  const HttpOptions& http = shared_.options.http;
  if (http.socket.empty()) {
    KV_RETURN_IF_ERROR(listen_at_address(kSetting, http.address, tcp_.socket()));
    tcp_.begin();
    return {};
  }
  KV_RETURN_IF_ERROR(prepare_socket_place(kSetting, http.socket, false));
  KV_RETURN_IF_ERROR(listen_at_path(kSetting, http.socket, false, local_.socket()));
  local_.begin();
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
