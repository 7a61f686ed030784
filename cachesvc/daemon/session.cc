// The connection's two halves: reading frames within limits, writing replies from where they lie.
#include "cachesvc/daemon/session.h"

#include <sys/socket.h>

#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>

namespace kv {
namespace {

constexpr size_t kMaxPieces = 256;  // per sendmsg
constexpr int kSocketBufferBytes = 4 << 20;

// Cuts the pieces to `bytes` > 0 in all. Returns how many are left.
size_t cut_to(size_t bytes, iovec* pieces, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (pieces[i].iov_len >= bytes) {
      pieces[i].iov_len = bytes;
      return i + 1;
    }
    bytes -= pieces[i].iov_len;
  }
  return count;
}

// True if what moved in this time is behind kMinBytesPerSecond, after a time for its start: whoever
// stops or dribbles is told apart from who has much to move by what has moved, not by what shall.
bool behind(Session::Clock::duration took, Milliseconds start, uint64_t moved_bytes) {
  return took > start + Milliseconds(moved_bytes * 1000 / kMinBytesPerSecond);
}

}  // namespace

Session::Session(SessionHost& host, Socket socket, uint64_t number,
                 std::shared_ptr<const void> room)
    : host_(host), socket_(std::move(socket)), number_(number), room_(std::move(room)) {
  accepted_ = last_read_ = last_write_ = frame_begun_ = unsent_since_ = Clock::now();
  parser_.set_external_puts(true);
  parser_.set_external_above(kMaxUnchargedBytes);
  parser_.set_object_bytes(host.options.max_put_bytes);
}

Session::~Session() = default;

void Session::start() {
  int fd = socket_.native_handle();
  ::setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &kSocketBufferBytes, sizeof(kSocketBufferBytes));
  boost::system::error_code ec;
  socket_.native_non_blocking(true, ec);
  if (ec) return close("cannot make the socket non-blocking");
  pump();
}

void Session::close(std::string_view why) {
  if (closed_) return;
  closed_ = true;
  auto self = shared_from_this();  // the host lets go of us
  boost::system::error_code ignored;
  socket_.close(ignored);
  out_.clear();
  unsent_bytes_ = 0;
  staging_ = {};
  if (greeted_) host_.core.disconnect(session_);
  host_.closed(*this, why);
}

void Session::finish() {
  if (closed_) return;
  finishing_ = true;
  if (in_flight_ == 0 && out_.empty()) close("the service is closing");
}

void Session::check(Clock::time_point now) {
  if (closed_) return;
  const ServerOptions& o = host_.options;
  if (!greeted_ && now - accepted_ > o.handshake_timeout) return close("no hello in time");
  if (!out_.empty()) {
    bool slow = behind(now - unsent_since_, o.progress_timeout, sent_since_);
    if (now - last_write_ > o.progress_timeout || slow) {
      return close("the peer does not read");
    }
  }
  bool mid_frame = !parser_.at_boundary() && parser_.awaiting() == nullptr && may_read();
  if (mid_frame) {
    bool slow = behind(now - frame_begun_, o.progress_timeout, parser_.received());
    if (now - last_read_ > o.progress_timeout || slow) {
      return close("a frame stopped half way");
    }
  }
  bool idle = greeted_ && in_flight_ == 0 && out_.empty() && parser_.at_boundary();
  if (idle && o.idle_timeout.count() > 0 &&
      now - std::max(last_read_, last_write_) > o.idle_timeout) {
    close("idle");
  }
}

// ---- reading

bool Session::may_read() const {
  return !closed_ && !finishing_ && in_flight_ < host_.options.max_in_flight &&
         unsent_bytes_ <= host_.options.max_unsent_bytes;
}

// Goes on reading after something that stopped it; never recurses into pump.
void Session::resume() {
  if (closed_ || pumping_ || read_armed_ || !may_read()) return;
  read_armed_ = true;
  last_read_ = frame_begun_ = Clock::now();  // the pause was ours
  boost::asio::post(socket_.get_executor(), [self = shared_from_this()] {
    self->read_armed_ = false;
    self->pump();
  });
}

void Session::pump() {
  if (closed_ || pumping_) return;
  auto self = shared_from_this();
  pumping_ = true;
  size_t budget = kTurnBytes;
  bool more = true;
  while (more && may_read()) {
    pump_frames();
    if (!may_read()) break;
    if (!parser_.error().ok()) {
      refuse_connection(0, parser_.error());
      break;
    }
    if (parser_.awaiting() != nullptr) {
      if (!asking_) ask_for_staging();
      if (parser_.awaiting() != nullptr) break;  // resumed by the answer
      continue;
    }
    more = read_some(budget);
  }
  pumping_ = false;
}

void Session::pump_frames() {
  while (may_read()) {
    auto frame = parser_.next();
    if (!frame) return;
    frame_begun_ = Clock::now();
    handle(std::move(*frame));
  }
}

// False if reading goes on later, by itself or by resume().
bool Session::read_some(size_t& budget) {
  auto self = shared_from_this();
  if (budget == 0) {
    auto begun = frame_begun_;
    pumping_ = false;  // resume() posts only when nobody pumps
    resume();
    frame_begun_ = begun;  // the frame's time goes on
    return false;
  }
  auto to = parser_.prepare();
  ssize_t n = ::recv(socket_.native_handle(), to.data(), std::min(to.size(), budget), 0);
  if (n > 0) {
    budget -= static_cast<size_t>(n);
    last_read_ = Clock::now();
    if (parser_.at_boundary()) frame_begun_ = last_read_;
    Status status = parser_.commit(static_cast<size_t>(n));
    if (!status.ok()) refuse_connection(0, status);
    return status.ok();
  }
  if (n == 0) {
    close(parser_.at_boundary() ? "the peer closed" : "the peer closed within a frame");
    return false;
  }
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) {
    close(std::string("recv: ") + std::strerror(errno));
    return false;
  }
  read_armed_ = true;
  socket_.async_wait(Socket::wait_read, [self](const boost::system::error_code& ec) {
    self->read_armed_ = false;
    if (!ec) self->pump();
  });
  return false;
}

// The body of a put or of a long request is charged to the RAM ledger before its bytes are taken;
// without room it is read and dropped, and the request is answered with the reason.
void Session::ask_for_staging() {
  uint64_t length = parser_.awaiting()->length;
  staging_error_ = {};
  bool put = parser_.awaiting()->type == FrameType::put;
  if (length == 0) {
    staging_error_ = corruption(std::string(to_string(parser_.awaiting()->type)) + ": no body");
    return parser_.skip_body();
  }
  asking_ = true;
  host_.core.allocate_staging(session_, length, put ? StagingFor::put : StagingFor::request,
                              deadline_of(0), [self = shared_from_this()](Result<Staging> buffer) {
                                self->asking_ = false;
                                if (self->closed_ || self->parser_.awaiting() == nullptr) return;
                                self->last_read_ = self->frame_begun_ = Clock::now();
                                self->take_staging(std::move(buffer));
                                self->resume();
                              });
}

void Session::take_staging(Result<Staging> buffer) {
  if (!buffer.ok()) {
    staging_error_ = buffer.status();
    return parser_.skip_body();
  }
  staging_ = std::move(*buffer);
  parser_.use_buffer({staging_.body.data(), staging_.body.size()});
}

// ---- writing

void Session::send_error(uint64_t request, const Status& status) {
  send(error_frame(request, status), true);
}

// The stream is out of step or the peer is not welcome: say why, then close.
void Session::refuse_connection(uint64_t request, const Status& status) {
  if (closed_) return;
  finishing_ = true;
  ++in_flight_;
  send_error(request, status);
}

void Session::send(OutFrame frame, bool last) {
  queue(std::move(frame), last);
  flush();
}

// For flush(), which writes as much as one turn may: of a long reply all frames come first.
void Session::queue(OutFrame frame, bool last) {
  if (closed_) return;
  if (out_.empty()) {
    last_write_ = unsent_since_ = Clock::now();
    sent_since_ = 0;
  }
  uint64_t bytes = frame.bytes();
  out_.push_back({std::move(frame), last});
  unsent_bytes_ += bytes;
}

void Session::flush() {
  if (closed_ || write_armed_ || flushing_) return;
  write_turn();
}

void Session::write_turn() {
  auto self = shared_from_this();
  flushing_ = true;
  size_t budget = kTurnBytes;
  while (!closed_ && !out_.empty() && write_some(budget)) {
  }
  flushing_ = false;
  if (closed_) return;
  if (out_.empty() && finishing_ && in_flight_ == 0) return close("finished");
  resume();
}

// False if writing goes on later.
bool Session::write_some(size_t& budget) {
  auto self = shared_from_this();
  if (budget == 0) {
    write_armed_ = true;
    boost::asio::post(socket_.get_executor(), [self] {
      self->write_armed_ = false;
      if (!self->closed_) self->write_turn();
    });
    return false;
  }
  iovec pieces[kMaxPieces];
  msghdr message{};
  message.msg_iov = pieces;
  // A peer that reads meanwhile would have one call send all there is.
  message.msg_iovlen =
      cut_to(budget, pieces, gather(out_.front().frame, front_sent_, pieces, kMaxPieces));
  ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL);
  if (n > 0) {
    uint64_t sent = static_cast<uint64_t>(n);
    budget -= std::min<uint64_t>(budget, sent);
    front_sent_ += sent;
    unsent_bytes_ -= sent;
    sent_since_ += sent;
    last_write_ = Clock::now();
    if (front_sent_ < out_.front().frame.bytes()) return true;
    if (out_.front().last) --in_flight_;
    out_.pop_front();
    front_sent_ = 0;
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    close(std::string("send: ") + std::strerror(errno));
    return false;
  }
  write_armed_ = true;
  socket_.async_wait(Socket::wait_write, [self](const boost::system::error_code& ec) {
    self->write_armed_ = false;
    if (!ec && !self->closed_) self->write_turn();
  });
  return false;
}

}  // namespace kv
