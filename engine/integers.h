// Products of packed weights with activations as integers (kernels.h): their definition, one row at
// a time, and the AVX-512 VNNI kernels that compute just that.
//
// For kernels_avx512.cc and tests. Pure functions, nothing checked, any thread.
#pragma once

#include <algorithm>
#include <cfloat>
#include <cmath>

#include "engine/kernels.h"
#include "engine/packed.h"

namespace kv {

/// Groups whose largest value is less count as zeros: the reciprocal of their scale is no number.
constexpr float kLeastActivation = 0x1p-100f;
constexpr float kLargestInteger = 32767;

/// ToIntegers of one group of 32.
inline void group_to_integers(const float* x, int16_t* q, float& scale, float& sum) {
  float largest = 0;
  bool finite = true;
  for (int j = 0; j < 32; ++j) {
    largest = std::max(largest, std::fabs(x[j]));
    finite &= std::isfinite(x[j]);
  }
  std::fill_n(q, 32, int16_t{0});
  scale = sum = finite ? 0.0f : NAN;
  if (!finite || largest < kLeastActivation) return;
  scale = largest / kLargestInteger;
  int32_t total = 0;
  for (uint32_t j = 0; j < 32; ++j) {
    const auto v = static_cast<int16_t>(std::lrint(x[j] * (kLargestInteger / largest)));
    q[activation_order(j)] = v;
    total += v;
  }
  sum = scale * static_cast<float>(total);
}

/// One weight row times row `b` of x.
template <TensorType type>
float integer_product(const uint8_t* row, uint32_t columns, const IntegerActivations& x,
                      uint32_t b) {
  const size_t groups = columns / 32;
  float y = 0;
  for (uint32_t g = 0; g < groups; ++g) {
    const PackedGroup w = unpack_group<type>(row, g);
    const int16_t* q = x.q + b * size_t{columns} + g * 32;
    int32_t sum = 0;
    for (uint32_t j = 0; j < 32; ++j) sum += w.q[j] * q[activation_order(j)];
    const size_t at = b * groups + g;
    y = std::fma(static_cast<float>(sum), w.scale[0] * x.scale[at], y);
    y = std::fma(w.offset, x.sum[at], y);
  }
  return y;
}

/// Both need a machine that avx512_engine_kernels() accepts. Null for types without integers, or
/// with more than one scale to a group.
using MultiplyIntegers = decltype(TypeKernels::multiply_integers);
MultiplyIntegers avx512_multiply_integers(TensorType type);
void avx512_to_integers(const float* x, uint32_t columns, int16_t* q, float* scale, float* sum);

}  // namespace kv
