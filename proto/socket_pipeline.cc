// Requests out while replies come in.
#include "proto/socket_pipeline.h"

#include <algorithm>
#include <utility>

namespace kv {

void SocketPipeline::add(OutFrame frame) {
  if (!frames_.empty()) connection_.next_request();
  if (frames_.empty()) {
    const auto owed = connection_.owed();
    frame.head.insert(frame.head.begin(), owed.begin(), owed.end());
  }
  frames_.push_back(std::move(frame));
}

bool SocketPipeline::may_send() const {
  // A cancel is read while fewer than max_in_flight are open.
  const size_t kept_free = connection_.stop().possible() ? 1 : 0;
  const size_t window =
      std::max<size_t>(connection_.hello().max_in_flight, 1 + kept_free) - kept_free;
  return closed_.ok() && sent_ < frames_.size() && sent_ - done_ < window;
}

// True if something was sent.
bool SocketPipeline::send_more() {
  bool some = false;
  while (may_send()) {
    auto bytes = connection_.send_some(frames_[sent_], offset_);
    if (!bytes.ok()) closed_ = bytes.status();
    if (!bytes.ok() || *bytes == 0) break;
    some = true;
    offset_ += *bytes;
    if (offset_ < frames_[sent_].bytes()) continue;
    frames_[sent_++] = {};  // frees its bytes
    offset_ = 0;
  }
  return some;
}

// True if a frame came.
Result<bool> SocketPipeline::take_arrived(const Take& take) {
  KV_ASSIGN_OR_RETURN(std::optional<Frame> frame, connection_.arrived());
  if (!frame) return false;
  const uint64_t id = frame->header.request;
  const size_t place = id - first_;  // far beyond the last one for an id below
  const bool asked = place < sent_ && !answered_[place];
  if (!asked) return connection_.out_of_step(*frame, first_);
  Result<Frame> reply = connection_.reply_of(id, std::move(*frame));
  if (connection_.broken()) return reply.status();
  if (take(place, reply)) {
    answered_[place] = true;
    ++done_;
  }
  if (connection_.broken()) return Status(StatusCode::unavailable, "the connection is broken");
  return true;
}

void SocketPipeline::drop_unsent(const Take& take) {
  const size_t kept = sent_ + (offset_ > 0 ? 1 : 0);  // a frame that is sent in part goes on
  for (size_t place = kept; place < frames_.size(); ++place) {
    take(place, cancelled());
    answered_[place] = true;
  }
  frames_.resize(kept);
}

Status SocketPipeline::cancel_sent(Deadline deadline) {
  std::vector<uint64_t> open;
  for (size_t place = 0; place < sent_; ++place) {
    if (!answered_[place]) open.push_back(first_ + place);
  }
  return connection_.cancel(open, deadline);
}

Status SocketPipeline::run(const Take& take, Deadline deadline) {
  answered_.assign(frames_.size(), false);
  while (done_ < frames_.size()) {
    if (connection_.stop().asked() && !std::exchange(stopped_, true)) {
      drop_unsent(take);
      cancels_ = true;
      continue;  // perhaps nothing is on its way
    }
    if (cancels_ && offset_ == 0) {
      KV_RETURN_IF_ERROR(cancel_sent(deadline));
      cancels_ = false;
    }
    const bool sent = send_more();
    KV_ASSIGN_OR_RETURN(bool came, take_arrived(take));  // the peer's last words too
    if (sent || came) continue;
    if (!closed_.ok()) return connection_.give_up(closed_);
    KV_RETURN_IF_ERROR(connection_.wait_for_peer(may_send(), deadline));
  }
  return {};
}

}  // namespace kv
