// EncodeWork: turns a client's put into a finished object in the pool. Runs on workers.
//
// Several workers may call encode_planes on one work; assemble comes after the last of them. Input
// is immutable; output planes lie in one pool buffer. Planes of known size are coded straight into
// it, others are copied there.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "cachesvc/core/encode_input.h"
#include "cachesvc/ram_pool.h"

namespace kv {

/// The first of several errors. Any thread.
class FirstError {
 public:
  void set(Status status) {
    std::lock_guard lock(mutex_);
    if (!failed_.exchange(true)) status_ = std::move(status);
  }
  bool failed() const { return failed_.load(); }
  /// Once nobody may set it any more.
  const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status status_;
};

struct EncodeWork {
  EncodeInput input;             ///< set before the first worker starts
  std::vector<PlaneSlot> slots;  ///< one per plane of the result: plane_slots(input)
  std::shared_ptr<RamPool> pool;
  Charge stored;   ///< pays for the result
  Charge staging;  ///< pays for input and scratch; lives as long as the work
  /// Has the bytes of the input's planes, and may become the result's payload; or is empty.
  PoolBuffer kept;

  // State shared by the workers.
  std::once_flag placed;      ///< `payload` and the slots' places are set, or never will be
  PoolBuffer payload;         ///< planes, then states
  std::vector<Plane> planes;  ///< results, by slot
  std::atomic<size_t> next{0};
  EncodeCounts counts;
  FirstError error;                ///< once there is one, runners stop
  std::vector<ObjectPtr> damaged;  ///< sources that were found changed in RAM
};

/// Takes planes until none is left. Errors go to `work.error`.
void encode_planes(EncodeWork& work);
/// Validates the whole and moves it into the pool. Returns: the first error; busy if the result is
/// larger than `stored` and the pool has no more;
/// not_found if a source was found damaged, which a copy would have hidden.
Result<RamObject> assemble(EncodeWork& work);

}  // namespace kv
