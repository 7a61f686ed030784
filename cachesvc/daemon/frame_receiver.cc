// Frames in.
#include "cachesvc/daemon/frame_receiver.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

namespace kv {

FrameReceiver::FrameReceiver(Host& host, Socket& socket, uint64_t max_put_bytes)
    : host_(host), socket_(socket) {
  parser_.set_external_puts(true);
  parser_.set_external_above(kMaxUnchargedBytes);
  parser_.set_object_bytes(max_put_bytes);
}

bool FrameReceiver::stuck(Clock::time_point now, Milliseconds progress_timeout) const {
  if (parser_.at_boundary() || parser_.awaiting() != nullptr || !host_.may_read()) return false;
  return now - last_read_ > progress_timeout ||
         behind(now - frame_begun_, progress_timeout, parser_.received());
}

void FrameReceiver::resume() {
  if (host_.closed() || pumping_ || armed_ || !host_.may_read()) return;
  armed_ = true;
  last_read_ = frame_begun_ = Clock::now();  // the pause was ours
  pump_in_turn();
}

void FrameReceiver::pump_in_turn() {
  host_.take_turn([this, keep = host_.keep()] {
    armed_ = false;
    pump();
  });
}

void FrameReceiver::pump() {
  if (host_.closed() || pumping_) return;
  auto keep = host_.keep();
  pumping_ = true;
  size_t budget = kTurnBytes;
  bool more = true;
  while (more && host_.may_read()) {
    pump_frames();
    if (!host_.may_read()) break;
    if (!parser_.error().ok()) {
      host_.refuse(parser_.error());
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

void FrameReceiver::pump_frames() {
  while (host_.may_read()) {
    auto frame = parser_.next();
    if (!frame) return;
    frame_begun_ = Clock::now();
    hand_on(std::move(*frame));
  }
}

void FrameReceiver::hand_on(Frame frame) {
  if (host_.none_in_flight()) uncharged_bytes_ = 0;
  uncharged_bytes_ += frame.body.size();
  parser_.set_external_above(kMaxUnchargedBytes - std::min(kMaxUnchargedBytes, uncharged_bytes_));
  Staging staging = std::exchange(staging_, {});
  if (staging.body.size() > 0) frame.body = std::move(staging.body).freeze();
  host_.received(std::move(frame), std::move(staging.room), std::exchange(staging_error_, {}));
}

// False if reading goes on later, by itself or by resume().
bool FrameReceiver::read_some(size_t& budget) {
  if (budget == 0) {
    auto begun = frame_begun_;
    pumping_ = false;  // resume() posts only when nobody pumps
    resume();
    frame_begun_ = begun;  // the frame's time goes on
    return false;
  }
  auto to = parser_.prepare();
  to = to.first(std::min(to.size(), budget));
  const int socket = socket_.native_handle();
  const ssize_t n =
      descriptors_ ? descriptors_->receive(socket, to) : ::recv(socket, to.data(), to.size(), 0);
  if (n > 0) {
    budget -= static_cast<size_t>(n);
    last_read_ = Clock::now();
    if (parser_.at_boundary()) frame_begun_ = last_read_;
    Status status = parser_.commit(static_cast<size_t>(n));
    if (!status.ok()) host_.refuse(status);
    return status.ok();
  }
  if (n == 0) {
    host_.close(parser_.at_boundary() ? "the peer closed" : "the peer closed within a frame");
    return false;
  }
  if (errno == EINTR) return true;
  if (errno != EAGAIN && errno != EWOULDBLOCK) {
    host_.close(std::string("recv: ") + std::strerror(errno));
    return false;
  }
  armed_ = true;
  socket_.async_wait(Socket::wait_read,
                     [this, keep = host_.keep()](const boost::system::error_code& ec) {
                       ec ? void(armed_ = false) : pump_in_turn();
                     });
  return false;
}

void FrameReceiver::ask_for_staging() {
  uint64_t length = parser_.awaiting()->length;
  staging_error_ = {};
  bool put = parser_.awaiting()->type == FrameType::put;
  if (length == 0) {
    staging_error_ = corruption(std::string(to_string(parser_.awaiting()->type)) + ": no body");
    return parser_.skip_body();
  }
  asking_ = true;
  host_.ask_for_staging(length, put ? StagingFor::put : StagingFor::request,
                        [this, keep = host_.keep()](Result<Staging> buffer) {
                          asking_ = false;
                          if (host_.closed() || parser_.awaiting() == nullptr) return;
                          last_read_ = frame_begun_ = Clock::now();
                          take_staging(std::move(buffer));
                          resume();
                        });
}

void FrameReceiver::take_staging(Result<Staging> buffer) {
  if (!buffer.ok()) {
    staging_error_ = buffer.status();
    return parser_.skip_body();
  }
  staging_ = std::move(*buffer);
  parser_.use_buffer({staging_.body.data(), staging_.body.size()});
}

}  // namespace kv
