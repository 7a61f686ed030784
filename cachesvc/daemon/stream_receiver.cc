// Messages in.
#include "cachesvc/daemon/stream_receiver.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "cachesvc/daemon/http_parser.h"
#include "proto/frame.h"
#include "proto/resp.h"

namespace kv {

template <typename Parser>
bool StreamReceiver<Parser>::stuck(Clock::time_point now, Milliseconds progress_timeout) const {
  if (parser_.at_boundary() || parser_.awaiting() != nullptr || !host_.may_read()) return false;
  return now - last_read_ > progress_timeout ||
         behind(now - message_begun_, progress_timeout, parser_.received());
}

template <typename Parser>
void StreamReceiver<Parser>::resume() {
  if (host_.closed() || pumping_ || armed_ || !host_.may_read()) return;
  armed_ = true;
  last_read_ = message_begun_ = Clock::now();  // the pause was ours
  pump_in_turn();
}

template <typename Parser>
void StreamReceiver<Parser>::pump_in_turn() {
  host_.take_turn([this, keep = host_.keep()] {
    armed_ = false;
    pump();
  });
}

template <typename Parser>
void StreamReceiver<Parser>::pump() {
  if (host_.closed() || pumping_) return;
  auto keep = host_.keep();
  pumping_ = true;
  size_t budget = kTurnBytes;
  bool more = true;
  while (more && host_.may_read()) {
    pump_messages();
    if (!host_.may_read()) break;
    if (!parser_.error().ok()) {
      host_.refuse(parser_.error());
      break;
    }
    if (parser_.awaiting() != nullptr) {
      if (!asking_) find_place();
      if (parser_.awaiting() != nullptr) break;  // resumed by the answer
      continue;
    }
    more = read_some(budget);
  }
  pumping_ = false;
}

template <typename Parser>
void StreamReceiver<Parser>::pump_messages() {
  while (host_.may_read()) {
    auto message = parser_.next();
    if (!message) return;
    message_begun_ = Clock::now();
    hand_on(std::move(*message));
  }
}

// False if reading goes on later, by itself or by resume().
template <typename Parser>
bool StreamReceiver<Parser>::read_some(size_t& budget) {
  if (budget == 0) {
    auto begun = message_begun_;
    pumping_ = false;  // resume() posts only when nobody pumps
    resume();
    message_begun_ = begun;  // the message's time goes on
    return false;
  }
  auto to = parser_.prepare();
  const ssize_t n = receive(socket_.native_handle(), to.first(std::min(to.size(), budget)));
  if (n > 0) {
    budget -= static_cast<size_t>(n);
    last_read_ = Clock::now();
    if (parser_.at_boundary()) message_begun_ = last_read_;
    Status status = parser_.commit(static_cast<size_t>(n));
    if (!status.ok()) host_.refuse(status);
    return status.ok();
  }
  if (n == 0) {
    host_.close(parser_.at_boundary() ? "the peer closed" : "the peer closed within a message");
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

template <typename Parser>
ssize_t StreamReceiver<Parser>::receive(int socket, std::span<uint8_t> to) {
  return ::recv(socket, to.data(), to.size(), 0);
}

template <typename Parser>
void StreamReceiver<Parser>::ask(uint64_t bytes, StagingFor use) {
  asking_ = true;
  staging_error_ = {};
  host_.ask_for_staging(bytes, use, [this, keep = host_.keep()](Result<Staging> got) {
    asking_ = false;
    if (host_.closed() || parser_.awaiting() == nullptr) return;
    last_read_ = message_begun_ = Clock::now();
    if (got.ok()) {
      staging_ = std::move(*got);
      const std::span<uint8_t> all(staging_.body.data(), staging_.body.size());
      parser_.use_buffer(all.last(parser_.body_bytes()));
    } else {
      skip(got.status());
    }
    resume();
  });
}

template <typename Parser>
void StreamReceiver<Parser>::skip(Status why) {
  staging_error_ = std::move(why);
  parser_.skip_body();
}

template class StreamReceiver<FrameParser>;
template class StreamReceiver<RespParser>;
template class StreamReceiver<HttpParser>;

}  // namespace kv
