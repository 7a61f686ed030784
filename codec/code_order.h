// The order in which vector kernels unpack the code values of a row (codec/TURBOQUANT.md, "Code
// layouts"): chunks of 32 bytes of a plane, each giving one group of 32 values per slice.
//
// A query in this order meets code values without a shuffle. What lies beyond a slice's last byte
// is other data: queries have zeros there, sums leave it out. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "codec/kernels.h"

namespace kv {

/// A row's plane of low bits: byte i holds dims i, i + bytes, i + 2 bytes …, one per slice.
struct CodePlane {
  uint32_t slices, shift, bytes;
};
constexpr CodePlane code_plane(uint32_t dim, uint8_t bits) {
  if (bits == 8) return {1, 0, dim};
  if (bits == 1) return {8, 1, (dim + 7) / 8};
  return bits == 4 ? CodePlane{2, 4, dim / 2} : CodePlane{4, 2, dim / 4};
}

/// Groups are numbered chunk by chunk, slice by slice. With `paired` (planes of up to 16 bytes) a
/// group holds two slices of 16 values. Calls visit(group, place in group, first dim, values) for
/// every run of up to `step` values that belong to dims.
template <typename Visit>
inline void for_each_group(CodePlane plane, bool paired, uint32_t step, Visit visit) {
  const uint32_t groups_per_chunk = paired ? plane.slices / 2 : plane.slices;
  const uint32_t span = paired ? 16 : 32;
  for (uint32_t chunk = 0; 32 * chunk < plane.bytes; ++chunk) {
    for (uint32_t s = 0; s < groups_per_chunk; ++s) {
      for (uint32_t i = 0; i < 32; i += step) {
        const uint32_t slice = paired ? 2 * s + i / 16 : s, byte = 32 * chunk + i % span;
        if (byte >= plane.bytes) continue;
        const uint32_t left = plane.bytes - byte;
        visit(chunk * groups_per_chunk + s, i, slice * plane.bytes + byte,
              left < step ? left : step);
      }
    }
  }
}

/// Kernels::order_query in this order; within a group, pieces of 8 values stand as `pieces` says.
inline void order_by_groups(const int16_t* q, uint32_t dim, uint8_t bits, bool paired,
                            const uint8_t pieces[4], int16_t* out) {
  std::memset(out, 0, query_width(dim) * sizeof(int16_t));
  for_each_group(code_plane(dim, bits), paired, 8,
                 [&](uint32_t group, uint32_t place, uint32_t first, uint32_t n) {
                   int16_t* to = out + group * 32 + pieces[place / 8] * 8;
                   std::memcpy(to, q + first, n * sizeof(int16_t));
                 });
}

}  // namespace kv
