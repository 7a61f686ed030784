// For the AVX-512 kernel files only: what they share.
//
// Only functions marked KV_AVX512 may run these instructions: after avx512_engine_kernels() has
// asked the machine. Pure functions, any thread.
#pragma once

#include <immintrin.h>

#define KV_AVX512 \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define KV_AVX512_INLINE KV_AVX512 __attribute__((always_inline)) inline

namespace kv::avx512 {

KV_AVX512_INLINE __m512 from_bytes(__m128i q) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q));
}
KV_AVX512_INLINE __m512 zero_to_15() {
  return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

}  // namespace kv::avx512
