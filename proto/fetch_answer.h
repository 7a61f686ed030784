// FetchAnswer: the frames of one fetch's reply, checked as they come: header, objects, done.
//
// One thread. What it gives points into the frames' bodies.
#pragma once

#include "proto/message.h"

namespace kv {

class FetchAnswer {
 public:
  explicit FetchAnswer(uint64_t max_reply_bytes) : max_reply_bytes_(max_reply_bytes) {}
  /// The next frame. True: it was the last one. Returns: corruption (it does not fit the ones
  /// before), resource_exhausted (over max_reply_bytes).
  Result<bool> take(const Frame& frame);
  /// Once, after the last frame.
  FetchReply reply();

 private:
  Status take_header(const Frame& frame);
  Status take_object(const Frame& frame);

  const uint64_t max_reply_bytes_;
  bool begun_ = false;
  FetchHeader header_;
  Prefix prefix_;
  uint64_t bytes_ = 0;  ///< of object frames
};

}  // namespace kv
