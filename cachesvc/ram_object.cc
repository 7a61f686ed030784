// The checksum of a payload, piece by piece.
#include "cachesvc/ram_object.h"

namespace kv {

Xxh128 payload_sum(const Object& object) {
  Xxh128Stream sum;
  for (const Plane& p : object.planes) sum.update(p.bytes.span());
  for (const StateBlob& s : object.states) sum.update(s.bytes.span());
  return sum.digest();
}

const uint8_t* payload_of(const Object& object) {
  for (const Plane& p : object.planes) {
    if (!p.bytes.empty()) return p.bytes.data();
  }
  for (const StateBlob& s : object.states) {
    if (!s.bytes.empty()) return s.bytes.data();
  }
  return nullptr;
}

bool intact(const RamObject& object) { return payload_sum(*object.object) == object.sum; }

}  // namespace kv
