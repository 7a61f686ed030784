// AVX-512 batch kernels: as batch_kernels_avx2.cc, with two rows of the panel in one register.
//
// Lanes 0-7 and 8-15 each do what an AVX2 register does there, so the bits are those of AVX2. Only
// functions marked KV_AVX512 may run these instructions. See batch_kernels.h.
#include <immintrin.h>

#include "engine/batch_kernels.h"
#include "engine/packed_avx2.h"

#define KV_AVX512 __attribute__((target("avx2,fma,f16c,avx512f,avx512dq,avx512vl")))
#define KV_AVX512_INLINE KV_AVX512 __attribute__((always_inline)) inline

namespace kv {
namespace {

using namespace avx2;

KV_AVX512_INLINE __m512 twice(__m256 v) { return _mm512_broadcast_f32x8(v); }

// 32 weights of a row. add(x, acc): acc plus their products with 32 activations of two rows.
template <TensorType type>
struct Weights {
  static constexpr bool kOffsets = type == TensorType::q4_1 || type == TensorType::q4_k;
  static constexpr bool kHalves = type == TensorType::q6_k;
  __m512 w[4], low, high;
  __m256 offset;

  KV_AVX512_INLINE Weights(const uint8_t* row, uint32_t g) {
    Group group = unpack<type>(row, g);
    w[0] = twice(floats<0>(group.q));
    w[1] = twice(floats<1>(group.q));
    w[2] = twice(floats<2>(group.q));
    w[3] = twice(floats<3>(group.q));
    low = _mm512_set1_ps(group.scale[0]);
    if constexpr (kHalves) high = _mm512_set1_ps(group.scale[1]);
    if constexpr (kOffsets) offset = _mm256_set1_ps(group.offset);
  }
  KV_AVX512_INLINE __m512 add(const float* x, __m512 acc) const {
    __m512 a = _mm512_mul_ps(w[0], _mm512_loadu_ps(x));
    a = _mm512_fmadd_ps(w[1], _mm512_loadu_ps(x + 16), a);
    __m512 b = _mm512_mul_ps(w[2], _mm512_loadu_ps(x + 32));
    b = _mm512_fmadd_ps(w[3], _mm512_loadu_ps(x + 48), b);
    if constexpr (kHalves) return _mm512_fmadd_ps(high, b, _mm512_fmadd_ps(low, a, acc));
    return _mm512_fmadd_ps(low, _mm512_add_ps(a, b), acc);
  }
};

// F32 and F16 have no groups: one chain of sums through the row.
struct PlainWeights {
  static constexpr bool kOffsets = false;
  __m512 w[4];
  __m256 offset;
  KV_AVX512_INLINE __m512 add(const float* x, __m512 acc) const {
    for (int i = 0; i < 4; ++i) acc = _mm512_fmadd_ps(w[i], _mm512_loadu_ps(x + 16 * i), acc);
    return acc;
  }
};

template <>
struct Weights<TensorType::f32> : PlainWeights {
  KV_AVX512_INLINE Weights(const uint8_t* row, uint32_t g) {
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] = twice(_mm256_loadu_ps(reinterpret_cast<const float*>(row + g * 128 + i * 32)));
    }
  }
};

template <>
struct Weights<TensorType::f16> : PlainWeights {
  KV_AVX512_INLINE Weights(const uint8_t* row, uint32_t g) {
    for (uint32_t i = 0; i < 4; ++i) {
      w[i] = twice(_mm256_cvtph_ps(
          _mm_loadu_si128(reinterpret_cast<const __m128i*>(row + g * 64 + i * 16))));
    }
  }
};

// `many` weight rows with a panel of `count` rows: each part of the panel is read once for them.
template <TensorType type, uint32_t count, uint32_t many>
KV_AVX512_INLINE void some_rows(const uint8_t* w, uint64_t stride, uint32_t columns,
                                const BatchActivations::Panel& x, float* y, size_t y_stride) {
  using Group = Weights<type>;
  constexpr uint32_t pairs = (count + 1) / 2;
  constexpr bool plain = type == TensorType::f32 || type == TensorType::f16;
  __m512 acc[many][pairs];
  __m256 offset[many];  // one lane per row of the panel
#pragma GCC unroll 2    // here and below so that the arrays are registers
  for (uint32_t r = 0; r < many; ++r) {
    offset[r] = _mm256_setzero_ps();
#pragma GCC unroll 4
    for (uint32_t p = 0; p < pairs; ++p) acc[r][p] = _mm512_setzero_ps();
  }
  const float* xg = x.x;
  for (uint32_t g = 0; g < columns / 32; ++g, xg += pairs * 64) {
    const Group first(w, g), last(w + (many - 1) * stride, g);
#pragma GCC unroll 4
    for (uint32_t p = 0; p < pairs; ++p) {
      acc[0][p] = first.add(xg + p * 64, acc[0][p]);
      if constexpr (many == 2) acc[1][p] = last.add(xg + p * 64, acc[1][p]);
    }
    if constexpr (Group::kOffsets) {
      const __m256 sums = _mm256_loadu_ps(x.sums + g * kBatchRows);
      offset[0] = _mm256_add_ps(offset[0], _mm256_mul_ps(first.offset, sums));
      if constexpr (many == 2) {
        offset[1] = _mm256_add_ps(offset[1], _mm256_mul_ps(last.offset, sums));
      }
    }
  }
#pragma GCC unroll 2
  for (uint32_t r = 0; r < many; ++r) {
    float offsets[8];
    _mm256_storeu_ps(offsets, offset[r]);
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      const float sum = lanes_sum(b % 2 == 0 ? _mm512_castps512_ps256(acc[r][b / 2])
                                             : _mm512_extractf32x8_ps(acc[r][b / 2], 1));
      y[b * y_stride + r] = plain ? sum : sum + offsets[b];
    }
  }
}

template <TensorType type, uint32_t count>
KV_AVX512 void rows_of(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                       const BatchActivations::Panel& x, float* y, size_t y_stride) {
  uint32_t r = 0;
  for (; r + 2 <= rows; r += 2) {
    some_rows<type, count, 2>(w + r * stride, stride, columns, x, y + r, y_stride);
  }
  if (r < rows) some_rows<type, count, 1>(w + r * stride, stride, columns, x, y + r, y_stride);
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

BatchRows avx512_batch_rows(TensorType type) {
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
