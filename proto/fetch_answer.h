// FetchAnswer: the frames of one fetch's reply, checked as they come: header, objects, done; or, of
// a mapped one, where its objects lie, and those that lie in no segment.
//
// One thread. What it gives points into the frames' bodies and into segments.
#pragma once

#include "proto/message.h"
#include "proto/segment_map.h"

namespace kv {

class FetchAnswer {
 public:
  explicit FetchAnswer(uint64_t max_reply_bytes) : max_reply_bytes_(max_reply_bytes) {}
  /// Of a mapped fetch with this selection; the map is the connection's.
  FetchAnswer(uint64_t max_reply_bytes, SegmentMap& map, const Selection& selection)
      : max_reply_bytes_(max_reply_bytes), map_(&map), selection_(selection) {}
  /// The next frame. True: it was the last one. Returns: corruption (it does not fit the ones
  /// before), resource_exhausted (over max_reply_bytes).
  Result<bool> take(const Frame& frame);
  /// Once, after the last frame.
  FetchReply reply();

 private:
  Status take_header(const Frame& frame);
  Status take_places(const Frame& frame);
  Status take_object(const Frame& frame);
  Status check_size() const;

  const uint64_t max_reply_bytes_;
  SegmentMap* const map_ = nullptr;  ///< null: all is streamed
  const Selection selection_;
  bool begun_ = false;
  FetchHeader header_;  ///< of what is streamed
  MappedPrefix objects_;
  uint32_t streamed_ = 0;  ///< that have come
  size_t next_ = 0;        ///< no object before it is still to come
  uint64_t bytes_ = 0;     ///< of object frames
};

}  // namespace kv
