// RamObject: an object in the RAM tier with the checksum of its payload.
//
// The sum is taken once, when the payload is complete in the pool, and goes wherever the object
// goes. Nothing ever writes to the payload, so one that no longer has its sum was changed by the
// machine (a flipped bit, a stray write): it must not be served, copied from, or written to the
// SSD. A value; any thread.
#pragma once

#include "proto/checksum.h"
#include "proto/plane.h"

namespace kv {

struct RamObject {
  ObjectPtr object;
  Xxh128 sum;  ///< sum of all planes' bytes in order, then all states'

  explicit operator bool() const { return object != nullptr; }
  const Object* operator->() const { return object.get(); }
  const Object& operator*() const { return *object; }
};

/// XXH3-128 of the payload as it lies in memory now.
Xxh128 payload_sum(const Object& object);
/// Begin of the payload, which lies in one buffer, planes first; null: it has no bytes.
const uint8_t* payload_of(const Object& object);
/// The payload still has its sum. Reads all of it: not on the loop.
bool intact(const RamObject& object);

}  // namespace kv
