// For the AVX2 and AVX-512 kernel files only: what they share.
//
// Only functions marked KV_AVX2 may run these instructions: after avx2_engine_kernels() has asked
// the machine. Pure functions, any thread.
#pragma once

#include <immintrin.h>

#include <cstdint>

#define KV_AVX2 __attribute__((target("avx2,fma,f16c")))
#define KV_AVX2_INLINE KV_AVX2 __attribute__((always_inline)) inline

namespace kv::avx2 {

KV_AVX2_INLINE float lanes_sum(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
KV_AVX2_INLINE __m128i load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}
KV_AVX2_INLINE __m256i load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

}  // namespace kv::avx2
