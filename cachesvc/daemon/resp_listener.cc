// Listening and admitting.
#include "cachesvc/daemon/resp_listener.h"

#include <sys/socket.h>

#include <string>
#include <utility>

#include "cachesvc/daemon/socket_place.h"

namespace kv {

RespListener::RespListener(boost::asio::io_context& io, Host& host, CacheCore& core,
                           EventLog& events, Turns& turns, const ServerOptions& options)
    : host_(host),
      shared_{core,
              options,
              events,
              turns,
              [this](ServerConnection& connection, std::string_view why) {
                host_.closed(connection, why);
              },
              RespHolds(core),
              {}},
      acceptor_(io, turns, events, [this](auto socket) { admit(std::move(socket)); }) {}

Status RespListener::listen() {
  KV_RETURN_IF_ERROR(
      listen_at_address("server.resp.listen", shared_.options.resp.listen, acceptor_.socket()));
  acceptor_.begin();
  return {};
}

void RespListener::admit(FrameSender::Socket socket) {
  auto room = host_.make_room();
  if (!room.ok()) {
    const std::string full = "-" + std::string(kRespFull) + "\r\n";
    (void)!::send(socket.native_handle(), full.data(), full.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    shared_.events.on(kRefusedFull, "resp: " + room.status().message(), 1,
                      FrameSender::Clock::now());
    return;
  }
  host_.add(std::make_shared<RespSession>(shared_, std::move(socket), host_.next_number(),
                                          std::move(*room)));
}

}  // namespace kv
