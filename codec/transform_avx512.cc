// The AVX-512 kernels of transform coding: sixteen states a register, 8 x 32 values of a product.
//
// Everything after the pragma must only run after avx512_kernels() has asked the machine. Pure
// functions, any thread.
#include <immintrin.h>

#include <algorithm>
#include <bit>

#include "codec/kernels_avx2.h"
#include "codec/transform_kernels.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,popcnt,avx512f,avx512bw,avx512dq,avx512vl")

namespace kv {
namespace {

// Sixteen states one step on; their values are stored.
KV_INLINE void step_sixteen(__m512i& x, const uint16_t*& words, const uint32_t* table,
                            int16_t* out) {
  const __m512i low = _mm512_set1_epi32(4095);
  const __m512i entry = _mm512_i32gather_epi32(_mm512_and_si512(x, low), table, 4);
  const __m512i offset = _mm512_and_si512(_mm512_srli_epi32(entry, 12), low);
  x = _mm512_add_epi32(_mm512_mullo_epi32(_mm512_and_si512(entry, low), _mm512_srli_epi32(x, 12)),
                       offset);
  const __mmask16 needs = _mm512_cmplt_epu32_mask(x, _mm512_set1_epi32(1 << 16));
  const __m512i next = _mm512_maskz_expand_epi32(needs, _mm512_cvtepu16_epi32(avx2::load(words)));
  x = _mm512_mask_or_epi32(x, needs, _mm512_slli_epi32(x, 16), next);
  words += std::popcount(static_cast<uint32_t>(needs));
  avx2::store(out, _mm512_cvtepi32_epi16(_mm512_srai_epi32(entry, 24)));
}

size_t decode_integers(uint32_t* states, const uint16_t* words, size_t word_count,
                       const uint32_t* table, size_t count, int16_t* out) {
  const uint16_t *at = words, *end = words + word_count;
  size_t i = 0;
  __m512i a = _mm512_loadu_si512(states), b = _mm512_loadu_si512(states + 16);
  // A step takes up to 32 words and reads 16 of them at a time.
  for (; i + kLanes <= count && end - at >= kLanes + 16; i += kLanes) {
    step_sixteen(a, at, table, out + i);
    step_sixteen(b, at, table, out + i + 16);
  }
  _mm512_storeu_si512(states, a), _mm512_storeu_si512(states + 16, b);
  for (; i < count; i += kLanes) {
    const size_t some = std::min<size_t>(kLanes, count - i);
    if (!step_states(states, at, end, table, some, out + i)) return kNoWords;
  }
  return static_cast<size_t>(at - words);
}

// A tile's rows times 32 columns.
KV_INLINE void product_block(const float* in, size_t n, const float* matrix, size_t stride,
                             const float* init, float* out, size_t out_stride) {
  __m512 sums[kProductRows][2];
#pragma GCC unroll 8  // so that arrays are registers
  for (auto& s : sums) s[0] = _mm512_loadu_ps(init), s[1] = _mm512_loadu_ps(init + 16);
  for (size_t k = 0; k < n; ++k, in += kProductRows, matrix += stride) {
    const __m512 m0 = _mm512_loadu_ps(matrix), m1 = _mm512_loadu_ps(matrix + 16);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < kProductRows; ++r) {
      const __m512 x = _mm512_set1_ps(in[r]);
      sums[r][0] = _mm512_fmadd_ps(x, m0, sums[r][0]);
      sums[r][1] = _mm512_fmadd_ps(x, m1, sums[r][1]);
    }
  }
#pragma GCC unroll 8
  for (uint32_t r = 0; r < kProductRows; ++r) {
    _mm512_storeu_ps(out + r * out_stride, sums[r][0]);
    _mm512_storeu_ps(out + r * out_stride + 16, sums[r][1]);
  }
}

void product(const float* in, size_t tiles, size_t n, const float* matrix, size_t stride,
             const float* init, float* out, size_t out_stride) {
  for (size_t j = 0; j < stride; j += 32) {
    for (size_t tile = 0; tile < tiles; ++tile) {
      product_block(in + tile * n * kProductRows, n, matrix + j, stride, init + j,
                    out + tile * kProductRows * out_stride + j, out_stride);
    }
  }
}

}  // namespace

const TransformKernels& avx512_transform_kernels() {
  static constexpr TransformKernels kAvx512 = {decode_integers, product};
  return kAvx512;
}

}  // namespace kv

#pragma GCC pop_options
