// FetchAnswer: the frames of one fetch's reply, checked as they come: header, objects, done; for a
// mapped one the places of its objects, then the objects that lie in no segment.
//
// One thread. Results point into the frames' bodies and into segments.
#pragma once

#include "proto/message.h"
#include "proto/segment_map.h"

namespace kv {

class FetchAnswer {
 public:
  explicit FetchAnswer(uint64_t max_reply_bytes) : max_reply_bytes_(max_reply_bytes) {}
  /// The answer of a mapped fetch with this selection; the map is the connection's.
  FetchAnswer(uint64_t max_reply_bytes, SegmentMap& map, const Selection& selection)
      : max_reply_bytes_(max_reply_bytes), map_(&map), selection_(selection) {}
  /// Takes the next frame. True: it was the last one. Returns: corruption (it does not fit the ones
  /// before), resource_exhausted (over max_reply_bytes).
  Result<bool> take(const Frame& frame);
  /// The reply. Call it once, after the last frame.
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
  FetchHeader header_;  ///< header of the streamed objects
  MappedPrefix objects_;
  uint32_t streamed_ = 0;  ///< streamed objects that have come
  size_t next_ = 0;        ///< first object that may still be to come
  uint64_t bytes_ = 0;     ///< bytes of object frames
};

}  // namespace kv
