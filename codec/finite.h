// Finite values: looks at exponents only, without converting. Pure, any thread.
//
// A value isn't finite if all bits of its exponent are set. Eight bytes at a time: one unit of the
// exponent's lowest bit is added to each lane's exponent, which then reaches the lane's highest bit
// for these values alone, and no other lane.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>

#include "proto/model.h"

namespace kv {

/// The exponent's bits, its lowest bit and the sign's of each value in eight bytes.
struct ExponentLanes {
  uint64_t exponent, lowest, sign;
};
constexpr ExponentLanes exponent_lanes(DType dtype) {
  constexpr uint64_t k16 = 0x0001'0001'0001'0001, k32 = 0x0000'0001'0000'0001;
  if (dtype == DType::f32) return {0x7F80'0000 * k32, 0x0080'0000 * k32, 0x8000'0000 * k32};
  if (dtype == DType::f16) return {0x7C00 * k16, 0x0400 * k16, 0x8000 * k16};
  return {0x7F80 * k16, 0x0080 * k16, 0x8000 * k16};
}

/// True if none of the `n` values of `dtype` at `data` is NaN or infinite.
inline bool finite_values(const uint8_t* data, size_t n, DType dtype) {
  const ExponentLanes lanes = exponent_lanes(dtype);
  auto bad = [&](uint64_t eight) { return ((eight & lanes.exponent) + lanes.lowest) & lanes.sign; };
  std::array<uint64_t, 4> words{}, found{};
  size_t at = 0;
  const size_t bytes = n * dtype_bytes(dtype);
  for (; bytes - at >= sizeof words; at += sizeof words) {
    std::memcpy(words.data(), data + at, sizeof words);
    for (size_t i = 0; i < words.size(); ++i) found[i] |= bad(words[i]);
  }
  words = {};
  if (bytes > at) std::memcpy(words.data(), data + at, bytes - at);
  for (size_t i = 0; i < words.size(); ++i) found[i] |= bad(words[i]);
  return (found[0] | found[1] | found[2] | found[3]) == 0;
}

}  // namespace kv
