// Leaving: evicted objects that a worker frees, because the system takes a millisecond to get a few
// megabytes back. The objects are charged until then; bytes() tells how much room is on its way.
// Loop thread only.
#pragma once

#include <utility>
#include <vector>

#include "cachesvc/core/env.h"
#include "cachesvc/ram_object.h"

namespace kv {

class Leaving {
 public:
  explicit Leaving(Env& env) : env_(env) {}
  Leaving(const Leaving&) = delete;  // steps after its jobs point here
  Leaving& operator=(const Leaving&) = delete;

  /// Payload of objects that are not free yet.
  uint64_t bytes() const { return bytes_; }
  void add(RamObject object, uint64_t payload_bytes) {
    next_bytes_ += payload_bytes;
    bytes_ += payload_bytes;
    next_.push_back(std::move(object));
  }
  /// Has a worker free what was added since the last call; then requests that wait for room look
  /// again.
  void go() {
    if (next_.empty()) return;
    env_.on_worker(
        [objects = std::exchange(next_, {})] { return true; },  // the job's end frees its objects
        [this, bytes = std::exchange(next_bytes_, 0)](bool) {
          bytes_ -= bytes;
          env_.room_freed();
        });
  }

 private:
  Env& env_;
  std::vector<RamObject> next_;
  uint64_t next_bytes_ = 0, bytes_ = 0;
};

}  // namespace kv
