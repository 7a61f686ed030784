// AVX2 batch kernels: 32 weights are unpacked once, then meet each row of the panel.
//
// Per row of activations each function repeats kernels_avx2.cc operation by operation. Only
// functions marked KV_AVX2 may run these instructions. See batch_kernels.h.
#include <immintrin.h>

#include "engine/batch_kernels.h"
#include "engine/packed_avx2.h"

namespace kv {
namespace {

using namespace avx2;

#define KV_AVX2_INLINE KV_AVX2 __attribute__((always_inline)) inline

// 32 weights of a row, ready for any number of products. add(x, acc): acc plus their product with
// 32 activations in a panel, in 8 lanes.
template <TensorType type>
struct Weights {
  static constexpr bool kOffsets = type == TensorType::q4_1 || type == TensorType::q4_k;
  static constexpr bool kHalves = type == TensorType::q6_k;
  __m256 w[4], low, high, offset;

  KV_AVX2_INLINE Weights(const uint8_t* row, uint32_t g) {
    Group group = unpack<type>(row, g);
    w[0] = floats<0>(group.q);
    w[1] = floats<1>(group.q);
    w[2] = floats<2>(group.q);
    w[3] = floats<3>(group.q);
    low = _mm256_set1_ps(group.scale[0]);
    if constexpr (kHalves) high = _mm256_set1_ps(group.scale[1]);
    if constexpr (kOffsets) offset = _mm256_set1_ps(group.offset);
  }
  KV_AVX2_INLINE __m256 add(const float* x, __m256 acc) const {
    __m256 a = _mm256_mul_ps(w[0], _mm256_loadu_ps(x));
    a = _mm256_fmadd_ps(w[1], _mm256_loadu_ps(x + 16), a);
    __m256 b = _mm256_mul_ps(w[2], _mm256_loadu_ps(x + 32));
    b = _mm256_fmadd_ps(w[3], _mm256_loadu_ps(x + 48), b);
    if constexpr (kHalves) return _mm256_fmadd_ps(high, b, _mm256_fmadd_ps(low, a, acc));
    return _mm256_fmadd_ps(low, _mm256_add_ps(a, b), acc);
  }
};

// F32 and F16 have no groups: one chain of sums through the row.
struct PlainWeights {
  static constexpr bool kOffsets = false;
  __m256 w[4], offset;
  KV_AVX2_INLINE __m256 add(const float* x, __m256 acc) const {
    for (int i = 0; i < 4; ++i) acc = _mm256_fmadd_ps(w[i], _mm256_loadu_ps(x + 16 * i), acc);
    return acc;
  }
};

template <>
struct Weights<TensorType::f32> : PlainWeights {
  KV_AVX2_INLINE Weights(const uint8_t* row, uint32_t g) {
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(row + g * 128 + i * 32));
    }
  }
};

template <>
struct Weights<TensorType::f16> : PlainWeights {
  KV_AVX2_INLINE Weights(const uint8_t* row, uint32_t g) {
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] =
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + g * 64 + i * 16)));
    }
  }
};

template <TensorType type, uint32_t count>
KV_AVX2 void rows_of(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                     const BatchActivations::Panel& x, float* y, size_t y_stride) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc[count], offset = _mm256_setzero_ps();  // offset: one lane per row of the panel
#pragma GCC unroll 8                                  // so that `acc` is registers
    for (uint32_t b = 0; b < count; ++b) acc[b] = _mm256_setzero_ps();
    const float* xg = x.x;
    for (uint32_t g = 0; g < columns / 32; ++g, xg += (count + 1) / 2 * 64) {
      const Weights<type> weights(w, g);
#pragma GCC unroll 8
      for (uint32_t b = 0; b < count; ++b)
        acc[b] = weights.add(xg + panel_offset(count, 0, b, 0), acc[b]);
      if constexpr (Weights<type>::kOffsets) {
        __m256 sums = _mm256_loadu_ps(x.sums + g * kBatchRows);
        offset = _mm256_add_ps(offset, _mm256_mul_ps(weights.offset, sums));
      }
    }
    float offsets[8];
    _mm256_storeu_ps(offsets, offset);
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      const float sum = lanes_sum(acc[b]);
      const bool plain = type == TensorType::f32 || type == TensorType::f16;
      y[b * y_stride + r] = plain ? sum : sum + offsets[b];
    }
  }
}

template <TensorType type>
void any_rows(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
              const BatchActivations::Panel& x, float* y, size_t y_stride) {
  static constexpr BatchRows kByCount[kBatchRows] = {
      rows_of<type, 1>, rows_of<type, 2>, rows_of<type, 3>, rows_of<type, 4>,
      rows_of<type, 5>, rows_of<type, 6>, rows_of<type, 7>, rows_of<type, 8>};
  kByCount[x.rows - 1](w, stride, rows, columns, x, y, y_stride);
}

}  // namespace

BatchRows avx2_batch_rows(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return any_rows<TensorType::f32>;
    case TensorType::f16:
      return any_rows<TensorType::f16>;
    case TensorType::q4_1:
      return any_rows<TensorType::q4_1>;
    case TensorType::q5_0:
      return any_rows<TensorType::q5_0>;
    case TensorType::q8_0:
      return any_rows<TensorType::q8_0>;
    case TensorType::q4_k:
      return any_rows<TensorType::q4_k>;
    case TensorType::q6_k:
      return any_rows<TensorType::q6_k>;
  }
  return nullptr;
}

}  // namespace kv
