// The connection's states and limits.
#include "cachesvc/daemon/http_session.h"

#include <algorithm>
#include <utility>

#include "cachesvc/daemon/fetch_frames.h"

namespace kv {
namespace {

// The party of the port's connections: no namespace that anybody enters.
constexpr const char* kHttpParty = kEveryNamespace;

}  // namespace

HttpSession::HttpSession(HttpHost& host, Socket socket, uint64_t number,
                         std::shared_ptr<const void> room)
    : host_(host),
      socket_(std::move(socket)),
      number_(number),
      room_(std::move(room)),
      sender_(*this, socket_),
      receiver_(*this, socket_) {
  ++host_.connections;
}

HttpSession::~HttpSession() = default;

void HttpSession::start() {
  boost::system::error_code ec;
  socket_.native_non_blocking(true, ec);
  if (ec) return close("cannot make the socket non-blocking");
  receiver_.pump();
}

void HttpSession::close(std::string_view why) {
  if (closed()) return;
  state_ = State::closed;
  auto self = shared_from_this();  // the host lets go of us
  boost::system::error_code ignored;
  socket_.close(ignored);
  sender_.drop();
  receiver_.drop();
  --host_.connections;
  host_.closed(*this, why);
}

void HttpSession::finish() {
  if (closed()) return;
  state_ = State::finishing;
  keeps_ = false;
  if (!busy_ && sender_.empty()) close("the service is closing");
}

void HttpSession::check(Clock::time_point now) {
  if (closed()) return;
  const ServerOptions& o = host_.options;
  if (!greeted_ && now - accepted_ > o.handshake_timeout) return close("no request in time");
  if (sender_.stuck(now, o.progress_timeout)) return close("the peer does not read");
  if (receiver_.stuck(now, o.progress_timeout)) return close("a request stopped half way");
  if (!may_read() || !receiver_.at_boundary()) return;
  const auto last = std::max(receiver_.last_read(), sender_.last_write());
  if (now - last > o.http_idle_timeout) close("idle");
}

void HttpSession::take_turn(std::function<void()> turn) {
  host_.turns.ask(kHttpParty, std::move(turn));
}

void HttpSession::received(HttpRequest request) {
  busy_ = greeted_ = true;
  only_head_ = request.method == "HEAD";
  keeps_ = request.keep_alive;
  host_.routes.run(
      request,
      [this, alive = keep()](HttpReply reply) {
        if (!closed()) answer(std::move(reply));
      },
      [this] {
        host_.core.count_denied();
        host_.events.on(kRefusedPassword, "http", 1, Clock::now());
      });
}

// Says why, then closes: what follows is out of step.
void HttpSession::refuse(const Status& status) {
  if (closed()) return;
  keeps_ = only_head_ = false;
  answer(http_text(receiver_.error_code(), status.message()));
}

void HttpSession::answer(HttpReply reply) {
  busy_ = false;
  if (state_ == State::finishing) keeps_ = false;
  std::shared_ptr<const void> room;
  if (reply.body.size() > kMaxUnchargedReplyBytes &&
      !(room = host_.core.memory().reply_room({}, reply.body.size()))) {
    reply = http_text(503, "no RAM for the answer now");
  }
  const std::string bytes = http_bytes(reply, only_head_, keeps_);
  OutFrame frame;
  frame.kept = std::move(room);
  frame.head.assign(bytes.begin(), bytes.end());
  if (!keeps_) state_ = State::finishing;
  sender_.queue(std::move(frame), true);
  sender_.flush();
}

void HttpSession::turn_over() {
  const bool over = state_ == State::finishing && sender_.empty() && !busy_;
  over ? close("finished") : receiver_.resume();
}

}  // namespace kv
