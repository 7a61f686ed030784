// The connection's states and limits.
#include "cachesvc/daemon/session.h"

#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace kv {
namespace {

constexpr int kSocketBufferBytes = 4 << 20;

}  // namespace

Session::Session(SessionHost& host, Socket socket, uint32_t user, uint64_t number,
                 std::shared_ptr<const void> room)
    : host_(host),
      socket_(std::move(socket)),
      number_(number),
      room_(std::move(room)),
      peer_(host, socket_.native_handle(), user),
      sender_(*this, socket_),
      receiver_(*this, socket_, host.options.max_put_bytes),
      requests_(*this, host, peer_) {}

Session::~Session() = default;

// Every arrow leads on; a last request may be followed by another reason to finish.
void Session::move(State to) {
  KV_CHECK(to > state_ || (to == State::finishing && state_ == State::finishing));
  state_ = to;
}

void Session::start() {
  int fd = socket_.native_handle();
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  boost::system::error_code ec;
  socket_.native_non_blocking(true, ec);
  if (ec) return close("cannot make the socket non-blocking");
  receiver_.pump();
}

std::string Session::peer() const {
  return peer_.ns().empty() ? "no hello yet" : "namespace " + peer_.ns();
}

void Session::close(std::string_view why) {
  if (closed()) return;
  move(State::closed);
  auto self = shared_from_this();  // the host lets go of us
  boost::system::error_code ignored;
  socket_.close(ignored);
  sender_.drop();
  receiver_.drop();
  peer_.leave(mappings().drop());
  host_.closed(*this, why);
}

void Session::finish() {
  if (closed()) return;
  move(State::finishing);
  if (in_flight_ == 0 && sender_.empty()) close("the service is closing");
}

void Session::check(Clock::time_point now) {
  if (closed()) return;
  const ServerOptions& o = host_.options;
  if (peer_.ns().empty() && now - accepted_ > o.handshake_timeout) {
    return close("no hello in time");
  }
  if (sender_.stuck(now, o.progress_timeout)) return close("the peer does not read");
  if (receiver_.stuck(now, o.progress_timeout)) return close("a frame stopped half way");
  if (now - receiver_.last_read() > o.lease_timeout) mappings().take_back_all();
  bool idle = state_ == State::serving && in_flight_ == 0 && sender_.empty() &&
              receiver_.at_boundary() && o.idle_timeout.count() > 0 && !mappings().any();
  if (idle && now - std::max(receiver_.last_read(), sender_.last_write()) > o.idle_timeout) {
    close("idle");
  }
}

bool Session::may_read() const {
  return state_ < State::finishing && in_flight_ < host_.options.max_in_flight &&
         sender_.unsent_bytes() <= host_.options.max_unsent_bytes;
}

void Session::received(Frame frame, std::shared_ptr<RoomCharges> room, Status dropped) {
  Status unreadable;
  if (requests_.took(frame, unreadable)) {
    if (!unreadable.ok()) refuse(unreadable);
    return;
  }
  ++in_flight_;
  requests_.answer(std::move(frame), std::move(room), dropped);
}

void Session::ask_for_staging(uint64_t bytes, StagingFor use, Done<Result<Staging>> done) {
  host_.core.memory().allocate_staging(peer_.session(), bytes, use,
                                       deadline_in(host_.options.request_timeout), std::move(done));
}

// Says why, then closes.
void Session::refuse(const Status& status) {
  if (closed()) return;
  last_request();
  ++in_flight_;
  sender_.queue(error_frame(0, status), true);
  sender_.flush();
}

void Session::turn_over() {
  bool over = state_ == State::finishing && sender_.empty() && in_flight_ == 0;
  over ? close("finished") : receiver_.resume();
}

void Session::greeted(bool keep_descriptors) {
  move(State::serving);
  receiver_.greeted();
  if (keep_descriptors) receiver_.keep_descriptors();
}

void Session::last_request() {
  if (!closed()) move(State::finishing);
}

}  // namespace kv
