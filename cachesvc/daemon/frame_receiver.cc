// Frames in.
#include "cachesvc/daemon/frame_receiver.h"

#include <algorithm>
#include <string>
#include <utility>

namespace kv {

FrameReceiver::FrameReceiver(Host& host, Socket& socket, uint64_t max_put_bytes)
    : StreamReceiver(host, socket), host_(host) {
  parser_.set_external_puts(true);
  parser_.set_external_above(kMaxUnchargedBytes);
  parser_.set_object_bytes(max_put_bytes);
}

void FrameReceiver::hand_on(Frame frame) {
  if (host_.none_in_flight()) uncharged_bytes_ = 0;
  uncharged_bytes_ += frame.body.size();
  parser_.set_external_above(kMaxUnchargedBytes - std::min(kMaxUnchargedBytes, uncharged_bytes_));
  Staging staging = take_staging();
  if (staging.body.size() > 0) frame.body = std::move(staging.body).freeze();
  host_.received(std::move(frame), std::move(staging.room), take_error());
}

void FrameReceiver::find_place() {
  const FrameHeader& header = *parser_.awaiting();
  if (header.length == 0) {
    return skip(corruption(std::string(to_string(header.type)) + ": no body"));
  }
  ask(header.length, header.type == FrameType::put ? StagingFor::put : StagingFor::request);
}

ssize_t FrameReceiver::receive(int socket, std::span<uint8_t> to) {
  return descriptors_ ? descriptors_->receive(socket, to) : StreamReceiver::receive(socket, to);
}

}  // namespace kv
