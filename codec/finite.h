// Finite values: looks at exponents only, without converting. Pure, any thread.
#pragma once

#include <cstdint>
#include <cstring>

#include "proto/model.h"

namespace kv {

/// True if none of the `n` values of `dtype` at `data` is NaN or infinite.
inline bool finite_values(const uint8_t* data, size_t n, DType dtype) {
  uint32_t bad = 0;
  if (dtype == DType::f32) {
    for (size_t i = 0; i < n; ++i) {
      uint32_t v;
      std::memcpy(&v, data + 4 * i, 4);
      bad |= (v & 0x7F800000u) == 0x7F800000u;
    }
  } else {
    const uint16_t exponent = dtype == DType::f16 ? 0x7C00 : 0x7F80;
    for (size_t i = 0; i < n; ++i) {
      uint16_t v;
      std::memcpy(&v, data + 2 * i, 2);
      bad |= (v & exponent) == exponent;
    }
  }
  return bad == 0;
}

}  // namespace kv
