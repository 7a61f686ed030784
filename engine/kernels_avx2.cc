// AVX2 kernels. Only functions marked KV_AVX2 may run these instructions. See kernels.h.
#include <immintrin.h>

#include <cstring>

#include "engine/kernels.h"

#define KV_AVX2 __attribute__((target("avx2,fma,f16c")))

namespace kv {
namespace {

KV_AVX2 inline float lanes_sum(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// 16 unsigned bytes times x[0..15], added to two chains.
KV_AVX2 inline void add_bytes(__m128i q, const float* x, __m256& a, __m256& b) {
  __m256 low = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(q));
  __m256 high = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(q, 8)));
  a = _mm256_fmadd_ps(low, _mm256_loadu_ps(x), a);
  b = _mm256_fmadd_ps(high, _mm256_loadu_ps(x + 8), b);
}

KV_AVX2 void rows_q4_1(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                       const float* x, const float* sums, float* y) {
  const __m128i mask = _mm_set1_epi8(15);
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc = _mm256_setzero_ps();
    __m128 offset = _mm_setzero_ps();
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const uint8_t* block = w + g * 20;
      const float* xg = x + g * 32;
      int head;
      std::memcpy(&head, block, 4);
      __m128 scales = _mm_cvtph_ps(_mm_cvtsi32_si128(head));  // scale, offset
      __m128i q = _mm_loadu_si128(reinterpret_cast<const __m128i*>(block + 4));
      __m256 a = _mm256_setzero_ps(), b = _mm256_setzero_ps();
      add_bytes(_mm_and_si128(q, mask), xg, a, b);
      add_bytes(_mm_and_si128(_mm_srli_epi16(q, 4), mask), xg + 16, a, b);
      acc = _mm256_fmadd_ps(_mm256_broadcastss_ps(scales), _mm256_add_ps(a, b), acc);
      offset = _mm_fmadd_ss(_mm_movehdup_ps(scales), _mm_load_ss(sums + g), offset);
    }
    y[r] = lanes_sum(acc) + _mm_cvtss_f32(offset);
  }
}

KV_AVX2 void rows_q8_0(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                       const float* x, const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc = _mm256_setzero_ps();
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const uint8_t* block = w + g * 34;
      const float* xg = x + g * 32;
      uint16_t head;
      std::memcpy(&head, block, 2);
      __m256 part = _mm256_setzero_ps();
      for (uint32_t j = 0; j < 32; j += 8) {
        __m128i q = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(block + 2 + j));
        part = _mm256_fmadd_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)), _mm256_loadu_ps(xg + j),
                               part);
      }
      acc = _mm256_fmadd_ps(_mm256_set1_ps(_cvtsh_ss(head)), part, acc);
    }
    y[r] = lanes_sum(acc);
  }
}

KV_AVX2 void rows_f32(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                      const float* x, const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc = _mm256_setzero_ps();
    for (uint32_t j = 0; j < columns; j += 8) {
      __m256 v = _mm256_loadu_ps(reinterpret_cast<const float*>(w + j * 4));
      acc = _mm256_fmadd_ps(v, _mm256_loadu_ps(x + j), acc);
    }
    y[r] = lanes_sum(acc);
  }
}

KV_AVX2 void rows_f16(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                      const float* x, const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    __m256 acc = _mm256_setzero_ps();
    for (uint32_t j = 0; j < columns; j += 8) {
      __m128i h = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w + j * 2));
      acc = _mm256_fmadd_ps(_mm256_cvtph_ps(h), _mm256_loadu_ps(x + j), acc);
    }
    y[r] = lanes_sum(acc);
  }
}

KV_AVX2 void sums_of_groups(const float* x, uint32_t columns, float* out) {
  for (uint32_t g = 0; g < columns / 32; ++g, x += 32) {
    __m256 a = _mm256_add_ps(_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8));
    __m256 b = _mm256_add_ps(_mm256_loadu_ps(x + 16), _mm256_loadu_ps(x + 24));
    out[g] = lanes_sum(_mm256_add_ps(a, b));
  }
}

constexpr EngineKernels kAvx2 = {"avx2", rows_q4_1, rows_q8_0, rows_f32, rows_f16, sums_of_groups};

}  // namespace

const EngineKernels* avx2_engine_kernels() {
  static const bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                __builtin_cpu_supports("f16c");
  return supported ? &kAvx2 : nullptr;
}

}  // namespace kv
