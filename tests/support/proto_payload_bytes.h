// Payload bytes that a decoded object header calls for. No test framework: for fuzz targets too.
#pragma once

#include "proto/plane.h"

namespace kv::testing {

/// States' sizes are kept in their empty slices.
inline uint64_t expected_payload_bytes(const Object& object) {
  uint64_t bytes = 0;
  for (const auto& p : object.planes) bytes += plane_bytes(p);
  for (const auto& s : object.states) bytes += s.bytes.size();
  return bytes;
}

}  // namespace kv::testing
