// EncodeWork: turns a client's put into a finished object in the pool. Runs on workers.
//
// Several workers may call encode_planes on one work; assemble comes after the last of them. Input
// is immutable; output planes lie in one pool buffer. Planes of known size are coded straight into
// it, others are copied there. A plane is brought, checked, coded and summed while it is in a
// core's cache: no pass over all bytes follows.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "cachesvc/core/encode_input.h"
#include "cachesvc/ram_pool.h"

namespace kv {

/// The sum of bytes that are ready in any order. Any thread.
class SumInOrder {
 public:
  /// For parts [0, parts). Before the first add().
  void expect(size_t parts) { ready_.resize(parts); }
  /// The caller may be the one that sums them and those that wait for them.
  void add(size_t part, std::span<const uint8_t> bytes);
  /// True once all are summed. After the last add().
  bool complete() const { return summed_ == ready_.size(); }
  Xxh128Stream& sum() { return sum_; }

 private:
  std::mutex mutex_;
  std::vector<std::optional<std::span<const uint8_t>>> ready_;
  size_t summed_ = 0;
  bool summing_ = false;
  Xxh128Stream sum_;  // of whoever sums
};

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
  RowSource read;  ///< brings the planes' bytes; null: they are there

  // State shared by the workers.
  std::once_flag placed;      ///< `payload` and the slots' places are set, or never will be
  PoolBuffer payload;         ///< planes, then states
  std::vector<Plane> planes;  ///< results, by slot
  SumInOrder sum;             ///< of those, where they lie in their places
  std::atomic<size_t> next{0};
  EncodeCounts counts;
  FirstError error;                ///< once there is one, runners stop
  std::vector<ObjectPtr> damaged;  ///< sources that were found changed in RAM
};

/// Memory for rows on their way that a work needs for each of its workers at a time.
uint64_t scratch_bytes(const EncodeWork& work);
/// Takes planes until none is left. Errors go to `work.error`.
void encode_planes(EncodeWork& work);
/// Validates the whole and moves it into the pool. Returns: the first error; busy if the result is
/// larger than `stored` and the pool has no more;
/// not_found if a source was found damaged, which a copy would have hidden.
Result<RamObject> assemble(EncodeWork& work);

}  // namespace kv
