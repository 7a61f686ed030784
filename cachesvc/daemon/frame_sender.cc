// Frames out.
#include "cachesvc/daemon/frame_sender.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "proto/descriptor_queue.h"

namespace kv {
namespace {

constexpr size_t kMaxPieces = 256;  // per sendmsg

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

}  // namespace

void FrameSender::queue(OutFrame frame, bool last) {
  if (out_.empty()) {
    last_write_ = unsent_since_ = Clock::now();
    sent_since_ = 0;
  }
  unsent_bytes_ += frame.bytes();
  out_.push_back({std::move(frame), last});
}

void FrameSender::flush() {
  if (!armed_ && !flushing_) turn();
}

void FrameSender::drop() {
  out_.clear();
  unsent_bytes_ = 0;
}

bool FrameSender::stuck(Clock::time_point now, Milliseconds progress_timeout) const {
  if (out_.empty()) return false;
  return now - last_write_ > progress_timeout ||
         behind(now - unsent_since_, progress_timeout, sent_since_);
}

void FrameSender::turn() {
  auto keep = host_.keep();
  flushing_ = true;
  turn_bytes_ = kTurnBytes;
  size_t budget = kTurnBytes;
  while (!host_.closed() && !out_.empty() && write_some(budget)) {
  }
  flushing_ = false;
  if (!host_.closed()) host_.turn_over();
}

void FrameSender::turn_later() {
  host_.take_turn([this, keep = host_.keep()] {
    armed_ = false;
    if (!host_.closed()) turn();
  });
}

// Makes the turn longer, unless others wait or it is a long one already.
bool FrameSender::may_go_on(size_t& budget) {
  if (turn_bytes_ >= kLongTurnBytes || host_.others_wait()) return false;
  turn_bytes_ += kTurnBytes;
  budget = kTurnBytes;
  return true;
}

// False if writing goes on later.
bool FrameSender::write_some(size_t& budget) {
  if (budget == 0 && !may_go_on(budget)) {
    armed_ = true;
    turn_later();
    return false;
  }
  iovec pieces[kMaxPieces];
  msghdr message{};
  message.msg_iov = pieces;
  // A peer that reads meanwhile would have one call send all there is.
  message.msg_iovlen =
      cut_to(budget, pieces, gather(out_.front().frame, front_sent_, pieces, kMaxPieces));
  DescriptorSpace space{};
  const int descriptor = out_.front().frame.descriptor;
  if (descriptor >= 0 && front_sent_ == 0) attach_descriptor(descriptor, space, message);
  ssize_t n = ::sendmsg(socket_.native_handle(), &message, MSG_NOSIGNAL);
  if (n > 0) {
    uint64_t sent = static_cast<uint64_t>(n);
    budget -= std::min<uint64_t>(budget, sent);
    front_sent_ += sent;
    unsent_bytes_ -= sent;
    sent_since_ += sent;
    last_write_ = Clock::now();
    if (front_sent_ < out_.front().frame.bytes()) return true;
    if (out_.front().last) host_.reply_sent();
    out_.pop_front();
    front_sent_ = 0;
    return true;
  }
  if (n < 0 && errno == EINTR) return true;
  if (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    host_.close(std::string("send: ") + std::strerror(errno));
    return false;
  }
  armed_ = true;
  socket_.async_wait(Socket::wait_write,
                     [this, keep = host_.keep()](const boost::system::error_code& ec) {
                       ec ? void(armed_ = false) : turn_later();
                     });
  return false;
}

}  // namespace kv
