// AVX-512 kernels: the sums of kernels_avx2.cc, 16 lanes in one register.
//
// Weights of four or five bits are looked up in a table of their group's 16 values. Only functions
// marked KV_AVX512 may run these instructions. See kernels.h.
#include <immintrin.h>

#include "engine/avx512.h"
#include "engine/kernel_tiles.h"
#include "engine/packed_avx2.h"
#include "engine/panel_tiles.h"

namespace kv {
namespace {

using namespace avx2;
using namespace avx512;

KV_AVX512_INLINE __m512 all_half(const uint8_t* p) { return _mm512_set1_ps(half(p)); }
// Table entries of the low, or the high, nibbles of 16 bytes. A look-up takes an index modulo 16.
KV_AVX512_INLINE __m512 low_entries(__m512i bytes, __m512 table) {
  return _mm512_permutexvar_ps(bytes, table);
}
KV_AVX512_INLINE __m512 high_entries(__m512i bytes, __m512 table) {
  return _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), table);
}

// 32 weights of a row: columns 0-15 in w[0], 16-31 in w[1].
template <TensorType type>
KV_AVX512_INLINE void weights_of(const uint8_t* row, uint32_t g, __m512 (&w)[2]);

template <>
KV_AVX512_INLINE void weights_of<TensorType::f32>(const uint8_t* row, uint32_t g, __m512 (&w)[2]) {
  w[0] = _mm512_loadu_ps(row + g * 128);
  w[1] = _mm512_loadu_ps(row + g * 128 + 64);
}

template <>
KV_AVX512_INLINE void weights_of<TensorType::f16>(const uint8_t* row, uint32_t g, __m512 (&w)[2]) {
  w[0] = _mm512_cvtph_ps(load32(row + g * 64));
  w[1] = _mm512_cvtph_ps(load32(row + g * 64 + 32));
}

template <>
KV_AVX512_INLINE void weights_of<TensorType::q4_1>(const uint8_t* row, uint32_t g, __m512 (&w)[2]) {
  const uint8_t* b = row + g * 20;
  const __m512 table = _mm512_fmadd_ps(zero_to_15(), all_half(b), all_half(b + 2));
  const __m512i bytes = _mm512_cvtepu8_epi32(load16(b + 4));
  w[0] = low_entries(bytes, table);
  w[1] = high_entries(bytes, table);
}

template <>
KV_AVX512_INLINE void weights_of<TensorType::q5_0>(const uint8_t* row, uint32_t g, __m512 (&w)[2]) {
  const uint8_t* b = row + g * 22;
  uint32_t fifth_bits;
  std::memcpy(&fifth_bits, b + 2, 4);
  const __m512 scale = all_half(b), set = _mm512_mul_ps(zero_to_15(), scale);
  const __m512 unset = _mm512_mul_ps(_mm512_sub_ps(zero_to_15(), _mm512_set1_ps(16)), scale);
  const __m512i low = _mm512_cvtepu8_epi32(load16(b + 6)), high = _mm512_srli_epi32(low, 4);
  w[0] = _mm512_mask_permutexvar_ps(low_entries(low, unset), static_cast<__mmask16>(fifth_bits),
                                    low, set);
  w[1] = _mm512_mask_permutexvar_ps(low_entries(high, unset),
                                    static_cast<__mmask16>(fifth_bits >> 16), high, set);
}

template <>
KV_AVX512_INLINE void weights_of<TensorType::q8_0>(const uint8_t* row, uint32_t g, __m512 (&w)[2]) {
  const uint8_t* b = row + g * 34;
  const __m512 scale = all_half(b);
  w[0] = _mm512_mul_ps(from_bytes(load16(b + 2)), scale);
  w[1] = _mm512_mul_ps(from_bytes(load16(b + 18)), scale);
}

template <>
KV_AVX512_INLINE void weights_of<TensorType::q4_k>(const uint8_t* row, uint32_t g, __m512 (&w)[2]) {
  const uint8_t* b = row + g / 8 * 144;
  uint32_t i = g % 8, scale, least;
  q4_k_scales(b + 4, i, scale, least);
  const float d = half(b) * static_cast<float>(scale);
  const float offset = -(half(b + 2) * static_cast<float>(least));
  const __m512 table = _mm512_fmadd_ps(zero_to_15(), _mm512_set1_ps(d), _mm512_set1_ps(offset));
  const uint8_t* q = b + 16 + i / 2 * 32;
  const __m512i first = _mm512_cvtepu8_epi32(load16(q)),
                second = _mm512_cvtepu8_epi32(load16(q + 16));
  w[0] = i % 2 == 0 ? low_entries(first, table) : high_entries(first, table);
  w[1] = i % 2 == 0 ? low_entries(second, table) : high_entries(second, table);
}

template <>
KV_AVX512_INLINE void weights_of<TensorType::q6_k>(const uint8_t* row, uint32_t g, __m512 (&w)[2]) {
  const Group group = unpack<TensorType::q6_k>(row, g);
  w[0] = _mm512_mul_ps(from_bytes(_mm256_castsi256_si128(group.q)), _mm512_set1_ps(group.scale[0]));
  w[1] = _mm512_mul_ps(from_bytes(_mm256_extracti128_si256(group.q, 1)),
                       _mm512_set1_ps(group.scale[1]));
}

struct Avx512 {
  static constexpr uint32_t kMostRows = 8;
  static constexpr uint32_t weight_rows(uint32_t count) { return count <= 4 ? 4 : 2; }

  template <TensorType type, uint32_t many, uint32_t count>
  KV_AVX512 static void tile(const uint8_t* w, uint64_t stride, uint32_t columns, const float* x,
                             size_t x_stride, float* y, size_t y_stride) {
    __m512 acc[many][count];
#pragma GCC unroll 4  // here and below so that the arrays are registers
    for (uint32_t r = 0; r < many; ++r) {
#pragma GCC unroll 8
      for (uint32_t b = 0; b < count; ++b) acc[r][b] = _mm512_setzero_ps();
    }
    const size_t part = many * stride * 32 / columns;
    for (uint32_t g = 0; g < columns / 32; ++g) {
      prefetch_weights(w + g * part, part);
      __m512 weights[many][2];
#pragma GCC unroll 4
      for (uint32_t r = 0; r < many; ++r) weights_of<type>(w + r * stride, g, weights[r]);
#pragma GCC unroll 2
      for (uint32_t k = 0; k < 2; ++k) {
#pragma GCC unroll 8
        for (uint32_t b = 0; b < count; ++b) {
          __m512 xb = _mm512_loadu_ps(x + b * x_stride + g * 32 + k * 16);
          asm("" : "+v"(xb));  // else the compiler loads it anew for every weight row
#pragma GCC unroll 4
          for (uint32_t r = 0; r < many; ++r) {
            acc[r][b] = _mm512_fmadd_ps(weights[r][k], xb, acc[r][b]);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < many; ++r) {
#pragma GCC unroll 8
      for (uint32_t b = 0; b < count; ++b) {
        y[b * y_stride + r] = lanes_sum(
            _mm256_add_ps(_mm512_castps512_ps256(acc[r][b]), _mm512_extractf32x8_ps(acc[r][b], 1)));
      }
    }
  }
};

TypeKernels kernels_of(TensorType type) {
  return with_type(type, [type]<TensorType t>() {
    return TypeKernels{multiply_by_tiles<Avx512, t>, avx512_panel_kernel(t),
                       avx2_engine_kernels()->of(type).widen, avx512_widen_panel(t)};
  });
}

}  // namespace

const EngineKernels* avx512_engine_kernels() {
  if (avx512_kernels() == nullptr) return nullptr;
  // A screen is read from memory: AVX2 keeps up with that.
  const EngineKernels& avx2 = *avx2_engine_kernels();
  static const EngineKernels kAvx512 = {"avx512",      kernels_of,          avx2.screen,
                                        avx2.round,    avx512_band_product, avx2.transpose,
                                        avx2.to_floats};
  return &kAvx512;
}

}  // namespace kv
