// EncodeWork: turns a client's put into a finished object in the pool. Runs on workers.
//
// Several workers may call encode_planes on one work; assemble comes after the last of them. Input
// is immutable; output planes lie in one pool buffer. Planes of known size are coded straight into
// it, others are copied there.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "cachesvc/ram_object.h"
#include "cachesvc/ram_pool.h"
#include "codec/codec.h"
#include "index/restorable.h"
#include "proto/client.h"

namespace kv {

struct EncodeWork {
  // Input, set before the first worker starts.
  Object object;  ///< stamped; its planes begin where the copies end
  std::vector<CopyRows> copies;
  std::vector<RamObject> sources;  ///< one per copy, resident
  RamObject states_of;             ///< object whose states are shared; may be null
  RowRange keep;                   ///< supplements with rows: cut to these
  bool encode = false;             ///< a complete block, or a supplement of one
  bool keep_nonfinite = false;     ///< planes and states with NaN or Inf are stored as given
  std::shared_ptr<const Codec> codec;
  std::shared_ptr<const std::vector<PartGroup>> groups;  ///< the model's
  std::shared_ptr<RamPool> pool;
  Charge stored;   ///< pays for the result
  Charge staging;  ///< pays for input and scratch; lives as long as the work

  // State shared by the workers.
  struct Slot {
    uint16_t layer = 0, part = 0;
    Side side = Side::k;
    const Plane* given = nullptr;
    std::span<uint8_t> place = {};  ///< its place in `payload`; empty: not known beforehand
  };
  std::once_flag placed;      ///< `payload` and the slots' places are set, or never will be
  PoolBuffer payload;         ///< planes, then states
  std::vector<Slot> slots;    ///< one per plane of the result
  std::vector<Plane> planes;  ///< results, by slot
  std::atomic<size_t> next{0};
  std::atomic<uint64_t> raw_fallbacks{0};
  std::atomic<uint64_t> nonfinite{0};  ///< planes and states with NaN or Inf, kept or refused
  std::mutex mutex;
  Status error;  ///< the first one
  std::atomic<bool> failed{false};
  std::vector<ObjectPtr> damaged;  ///< sources that were found changed in RAM
};

/// Checks which planes and states there are, against the object's kind; fills `slots`.
/// Returns: invalid_argument naming layer, part, side, expected and given.
Status prepare(EncodeWork& work);
/// Keeps the first error; runners stop. Any thread.
void fail(EncodeWork& work, Status status);
/// Takes planes until none is left. Errors go to `work.error`.
void encode_planes(EncodeWork& work);
/// Validates the whole and moves it into the pool. Returns: the first error; busy if the result is
/// larger than `stored` and the pool has no more;
/// not_found if a source was found damaged, which a copy would have hidden.
Result<RamObject> assemble(EncodeWork& work);

/// The object with its payload in `buffer`, of payload_bytes(), and its sum. Bytes that lie there
/// already stay; others are copied. Not on the loop.
Result<RamObject> into_buffer(Object object, PoolBuffer buffer);

/// Allocates `bytes` of the pool for `ns`, paid by `charge` (and by the pool, if that is too
/// small). Returns: busy.
Result<PoolBuffer> buffer_in_pool(uint64_t bytes, RamPool& pool, Charge& charge,
                                  std::string_view ns);

}  // namespace kv
