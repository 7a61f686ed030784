// Taking the socket's place safely, admitting peers, sweeping time limits.
#include "cachesvc/daemon/server.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "cachesvc/daemon/socket_place.h"

namespace kv {
namespace {

constexpr int kUnpaidConnections = 8;

Status errno_status(const std::string& what) {
  return {StatusCode::io_error, what + ": " + std::strerror(errno)};
}

}  // namespace

Server::Server(boost::asio::io_context& io, CacheCore& core, EventLog& events,
               ServerOptions options)
    : options_(std::move(options)),
      events_(events),
      gate_(options_, ::geteuid()),
      codings_(events),
      host_{core,
            options_,
            [this](ServerConnection& session, std::string_view why) { closed(session, why); },
            codings_,
            gate_,
            events_,
            std::make_shared<Turns>(io.get_executor()),
            std::make_shared<MappingPeers>(io.get_executor()),
            {}},
      acceptor_(io, *host_.turns, events, [this](auto socket) { admit(std::move(socket)); }),
      resp_(options_.resp.listen.port == 0
                ? nullptr
                : std::make_unique<RespListener>(io, *this, core, events, *host_.turns, options_)),
      http_(options_.http.on()
                ? std::make_unique<HttpListener>(io, *this, core, events, *host_.turns, options_)
                : nullptr),
      sweep_timer_(io.get_executor(), [this] { sweep(); }),
      finish_timer_(io.get_executor(), [this] { close_all(); }) {}

Server::~Server() {
  finished_ = nullptr;
  stop_accepting();
  if (http_) http_->stop();
  close_all();
  if (lock_fd_ >= 0) ::close(lock_fd_);
}

Status Server::listen() {
  KV_RETURN_IF_ERROR(take_place());
  acceptor_.begin();
  sweep_later();
  if (resp_) KV_RETURN_IF_ERROR(resp_->listen());
  return http_ ? http_->listen() : Status();
}

Status Server::take_place() {
  if (::getrandom(host_.boot.data(), host_.boot.size(), 0) !=
      static_cast<ssize_t>(host_.boot.size())) {
    return errno_status("getrandom");
  }
  return options_.listening_fd >= 0 ? take_listening() : bind_place();
}

// The manager that opened the socket says who may connect, beside the gate, and whose place it is.
Status Server::take_listening() {
  sockaddr_un address{};
  socklen_t size = sizeof(address);
  if (::getsockname(options_.listening_fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return errno_status("LISTEN_FDS");
  }
  const std::string path(address.sun_path, ::strnlen(address.sun_path, sizeof(address.sun_path)));
  if (path != options_.socket) {
    return invalid_argument("server.socket: " + options_.socket +
                            ", but the service manager passed a socket at \"" + path + "\"");
  }
  boost::system::error_code ec;
  acceptor_.socket().assign(Protocol(), options_.listening_fd, ec);
  return ec ? Status(StatusCode::io_error, "LISTEN_FDS: " + ec.message()) : Status();
}

Status Server::bind_place() {
  const std::string& path = options_.socket;
  bool others = gate_.opens_to_others();
  KV_RETURN_IF_ERROR(prepare_socket_directory("server.socket", path, others));
  lock_fd_ = ::open((path + ".lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock_fd_ < 0) return errno_status("server.socket: " + path + ".lock");
  if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    return {StatusCode::busy, "server.socket: another service holds " + path};
  }
  KV_RETURN_IF_ERROR(remove_stale_socket("server.socket", path));
  return listen_at_path("server.socket", path, others, acceptor_.socket());
}

Status Server::admit_by(const ServerOptions& options) {
  Gate gate(options, ::geteuid());
  if (gate.opens_to_others() != gate_.opens_to_others()) {
    return {StatusCode::unsupported,
            "users beside our own, where there were none, or none any more"};
  }
  gate_ = std::move(gate);
  return {};
}

void Server::stop_accepting() {
  if (!acceptor_.taking()) return;
  acceptor_.stop();
  if (resp_) resp_->stop();
  if (options_.listening_fd < 0) ::unlink(options_.socket.c_str());
}

// The peer's user, if it may connect.
Result<uint32_t> Server::check_peer(int fd) const {
  ucred peer{};
  socklen_t size = sizeof(peer);
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return errno_status("SO_PEERCRED");
  }
  KV_RETURN_IF_ERROR(gate_.may_connect(peer.uid));
  return peer.uid;
}

// A guest may have half of all connections: the others stay for the service's own user.
Status Server::check_guest(uint32_t user) const {
  if (gate_.is_admin(user)) return {};
  const auto its = std::count_if(connections_.begin(), connections_.end(),
                                 [&](const auto& entry) { return entry.second->user() == user; });
  const size_t most = (options_.max_connections + 1) / 2;
  if (static_cast<size_t>(its) < most) return {};
  return {StatusCode::busy, "server.max_connections: user " + std::to_string(user) + " has " +
                                std::to_string(its) + ", half of them, which is the most for one"};
}

// A few connections need no room, so that stats can be had when RAM is full.
Result<std::shared_ptr<const void>> Server::make_room() {
  if (connections_.size() >= options_.max_connections) {
    return Status(StatusCode::busy, "server.max_connections " +
                                        std::to_string(options_.max_connections) + " reached");
  }
  auto room = host_.core.memory().session_room(kSessionBytes);
  auto unpaid = std::count_if(connections_.begin(), connections_.end(),
                              [](const auto& entry) { return !entry.second->paid(); });
  if (room || unpaid < kUnpaidConnections) return room;
  return Status(StatusCode::busy, "no RAM for another connection now");
}

void Server::admit(FrameSender::Socket socket) {
  auto user = check_peer(socket.native_handle());
  if (!user.ok()) return refuse(socket.native_handle(), user.status());
  if (Status s = check_guest(*user); !s.ok()) return refuse(socket.native_handle(), s);
  auto room = make_room();
  if (!room.ok()) return refuse(socket.native_handle(), room.status());
  add(std::make_shared<Session>(host_, std::move(socket), *user, next_number(), std::move(*room)));
}

void Server::refuse(int fd, const Status& status) {
  OutFrame frame = error_frame(0, status);
  // A fresh socket's buffer takes these few bytes; if not, the peer sees a closed connection.
  (void)!::send(fd, frame.head.data(), frame.head.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  const bool full = status.code() == StatusCode::busy;
  if (!full) host_.core.count_denied();
  events_.on(full ? kRefusedFull : kRefusedUser, status.message(), 1, Session::Clock::now());
}

void Server::add(std::shared_ptr<ServerConnection> connection) {
  connections_[connection->number()] = connection;
  spdlog::debug("connection {}: accepted", connection->number());
  connection->start();
}

void Server::closed(ServerConnection& connection, std::string_view why) {
  spdlog::debug("connection {} ({}): {}", connection.number(), connection.peer(), why);
  connections_.erase(connection.number());
  check_finished();
}

// Looks at every connection's time limits.
void Server::sweep() {
  const auto now = Session::Clock::now();
  auto connections = connections_;  // check() may close and erase
  if (SegmentStore* segments = host_.core.pool()->segments()) retire_segments(*segments);
  for (auto& [number, connection] : connections) connection->check(now);
  sweep_later();
}

// The emptiest announced segments go while too much of them lies idle.
void Server::retire_segments(SegmentStore& segments) {
  segments.close_retired();
  while (host_.core.pool()->segments_idle()) {
    const uint32_t id = segments.retire_emptiest();
    auto connections = connections_;  // one may close
    for (auto& [number, connection] : connections) connection->revoke(id);
  }
  if (segments.retired_idle_bytes() > 0) host_.core.memory().empty_retired();
}

// Sweep interval, short enough for the shortest of the limits.
void Server::sweep_later() {
  auto shortest = std::min(options_.handshake_timeout, options_.progress_timeout);
  if (options_.idle_timeout.count() > 0) shortest = std::min(shortest, options_.idle_timeout);
  sweep_timer_.arm_in(std::clamp(shortest / 4, Milliseconds(5), Milliseconds(1000)));
}

void Server::finish(Deadline deadline, std::function<void()> done) {
  stop_accepting();
  if (http_) http_->stop();
  finished_ = std::move(done);
  auto connections = connections_;
  for (auto& [number, connection] : connections) connection->finish();
  finish_timer_.arm_at(deadline);
  check_finished();
}

void Server::close_all() {
  while (!connections_.empty()) connections_.begin()->second->close("the service is closing");
}

void Server::check_finished() {
  if (!finished_ || !connections_.empty()) return;
  auto done = std::move(finished_);
  finished_ = nullptr;
  done();
}

}  // namespace kv
