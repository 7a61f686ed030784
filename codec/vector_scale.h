// The scale of one coded vector, from what the inner loops counted: shared by all kernel sets.
// Pure functions, any thread. codec/TURBOQUANT.md, "Scale".
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "codec/float16.h"
#include "codec/kernels.h"
#include "codec/turboquant.h"

namespace kv {

/// What a vector whose sum of squares is not finite has: a value that isn't, or only a large norm.
inline VectorState classify(const float* x, uint32_t dim) {
  for (uint32_t j = 0; j < dim; ++j) {
    if (!std::isfinite(x[j])) return VectorState::not_finite;
  }
  return VectorState::scale_overflow;
}

/// norm / |code vector|, the norm correction, as fp16; infinity if it doesn't fit.
inline uint16_t corrected_scale(float norm, uint32_t square_sum) {
  return float_to_half(norm / std::sqrt(static_cast<float>(square_sum) * kSquareUnit));
}

/// absmax / 127 / rotation_norm as fp16.
inline uint16_t int8_scale(float absmax, float length) {
  return float_to_half(absmax / (127.0f * length));
}

inline bool scale_fits(uint16_t scale) { return scale < 0x7C00u; }

/// The fixed tree over 8 lanes that every sum of 8 lanes ends in.
inline float sum_lanes(const float* l) {
  return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]));
}

}  // namespace kv
