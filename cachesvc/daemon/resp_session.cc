// The connection's states and limits.
#include "cachesvc/daemon/resp_session.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace kv {

RespSession::RespSession(RespHost& host, Socket socket, uint64_t number,
                         std::shared_ptr<const void> room)
    : host_(host),
      socket_(std::move(socket)),
      number_(number),
      room_(std::move(room)),
      sender_(*this, socket_),
      receiver_(*this, socket_, host.options.max_put_bytes),
      commands_(*this, host.core, host.options.resp, host.holds, host.counts) {
  ++host_.counts.connections;
  ++host_.connections;
}

RespSession::~RespSession() = default;

void RespSession::start() {
  const int fd = socket_.native_handle(), on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  boost::system::error_code ec;
  socket_.native_non_blocking(true, ec);
  if (ec) return close("cannot make the socket non-blocking");
  const bool wants_password = !host_.options.resp.password.empty();
  receiver_.set_newcomer(wants_password);
  if (!wants_password && !enter().ok()) {
    last_command();
    return resp_error(*this, kRespFull);
  }
  receiver_.pump();
}

void RespSession::close(std::string_view why) {
  if (closed()) return;
  state_ = State::closed;
  auto self = shared_from_this();  // the host lets go of us
  boost::system::error_code ignored;
  socket_.close(ignored);
  sender_.drop();
  receiver_.drop();
  if (session_ != 0) host_.core.disconnect(session_);
  --host_.connections;
  host_.closed(*this, why);
}

void RespSession::finish() {
  if (closed()) return;
  state_ = State::finishing;
  if (!busy_ && sender_.empty()) close("the service is closing");
}

void RespSession::check(Clock::time_point now) {
  if (closed()) return;
  const ServerOptions& o = host_.options;
  if (session_ == 0 && now - accepted_ > o.handshake_timeout) return close("no password in time");
  if (sender_.stuck(now, o.progress_timeout)) return close("the peer does not read");
  if (receiver_.stuck(now, o.progress_timeout)) close("a command stopped half way");
}

// Before the password all are one party.
void RespSession::take_turn(std::function<void()> turn) {
  host_.turns.ask(session_ == 0 ? Turns::kNewcomers : host_.options.resp.ns, std::move(turn));
}

bool RespSession::may_read() const {
  return state_ == State::open && !busy_ &&
         sender_.unsent_bytes() <= host_.options.max_unsent_bytes;
}

void RespSession::received(RespRequest request) {
  busy_ = true;
  commands_.run(std::move(request));
}

void RespSession::ask_for_staging(uint64_t bytes, StagingFor use, Done<Result<Staging>> done) {
  host_.core.memory().allocate_staging(session_, bytes, use, deadline_in(kRespTimeout),
                                       std::move(done));
}

// Says why, then closes.
void RespSession::refuse(const Status& status) {
  if (closed()) return;
  last_command();
  resp_error(*this, "ERR " + status.message());
}

void RespSession::turn_over() {
  const bool over = state_ == State::finishing && sender_.empty() && !busy_;
  over ? close("finished") : receiver_.resume();
}

void RespSession::answer(OutFrame reply) {
  if (closed()) return;
  busy_ = false;
  sender_.queue(std::move(reply), true);
  sender_.flush();
}

void RespSession::last_command() {
  if (!closed()) state_ = State::finishing;
}

Status RespSession::enter() {
  if (session_ != 0) return {};
  auto session = host_.core.connect(host_.options.resp.ns, Right::own);
  if (!session.ok()) {
    host_.events.on(kRefusedFull, "resp: " + session.status().message(), 1, Clock::now());
    return session.status();
  }
  session_ = *session;
  receiver_.set_newcomer(false);
  commands_.entered(session_);
  return {};
}

void RespSession::refused_password() {
  host_.core.count_denied();
  host_.events.on(kRefusedPassword, "resp", 1, Clock::now());
}

void RespSession::dropped_value() {
  ++host_.counts.dropped;
  host_.events.on(kRespDropped, "", 1, Clock::now());
}

}  // namespace kv
