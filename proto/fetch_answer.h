// FetchAnswer: the frames of one fetch's reply, checked as they come: header, objects, done; for a
// mapped one the places of its objects, then the objects that lie in no segment. What the service
// writes into the client's memory comes as headers.
//
// One thread. Results point into the frames' bodies and into segments.
#pragma once

#include <algorithm>

#include "proto/into.h"
#include "proto/message.h"
#include "proto/segment_map.h"

namespace kv {

class FetchAnswer {
 public:
  explicit FetchAnswer(uint64_t max_reply_bytes) : max_reply_bytes_(max_reply_bytes) {}
  /// The answer of a mapped fetch with this selection; the map is the connection's.
  FetchAnswer(uint64_t max_reply_bytes, SegmentMap& map, const Selection& selection)
      : max_reply_bytes_(max_reply_bytes), map_(&map), selection_(selection) {}
  /// The answer of a fetch whose payload fills these pieces, which live as long as this.
  FetchAnswer(uint64_t max_reply_bytes, const Pieces& into)
      : max_reply_bytes_(std::min(max_reply_bytes, bytes_of(into))), into_(&into) {}
  /// Takes the next frame. True: it was the last one. Returns: corruption (it does not fit the ones
  /// before), resource_exhausted (over max_reply_bytes).
  Result<bool> take(const Frame& frame);
  /// The reply. Call it once, after the last frame.
  FetchReply reply();

 private:
  Status take_header(const Frame& frame);
  Status take_places(const Frame& frame);
  Status take_object(const Frame& frame);
  Status take_placed(const Frame& frame);
  Status check_size() const;

  const uint64_t max_reply_bytes_;
  SegmentMap* const map_ = nullptr;     ///< null: all is streamed, or
  const Pieces* const into_ = nullptr;  ///< all is written here
  const Selection selection_;
  bool begun_ = false;
  FetchHeader header_;  ///< header of the streamed objects
  MappedPrefix objects_;
  uint32_t streamed_ = 0;  ///< streamed objects that have come
  size_t next_ = 0;        ///< first object that may still be to come
  uint64_t bytes_ = 0;     ///< bytes of object frames, or of payloads written
};

}  // namespace kv
