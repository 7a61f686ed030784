// The checksum of a payload, piece by piece.
#include "cachesvc/ram_object.h"

namespace kv {

Xxh128 payload_sum(const Object& object) {
  Xxh128Stream sum;
  for (const Plane& p : object.planes) sum.update(p.bytes.span());
  for (const StateBlob& s : object.states) sum.update(s.bytes.span());
  return sum.digest();
}

bool intact(const RamObject& object) { return payload_sum(*object.object) == object.sum; }

}  // namespace kv
