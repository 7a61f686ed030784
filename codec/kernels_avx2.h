// Shared by the AVX2 kernel files only: small helpers, and the other files' functions.
//
// Its inline functions are compiled for AVX2 wherever it is included. Pure functions, any thread.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "codec/turboquant.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace kv::avx2 {

#define KV_INLINE inline __attribute__((always_inline))
#define KV_LAMBDA_INLINE __attribute__((always_inline))

KV_INLINE __m256i load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
KV_INLINE __m128i load_half(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
KV_INLINE void store(void* p, __m256i v) { _mm256_storeu_si256(static_cast<__m256i*>(p), v); }

// ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)), as sum_lanes.
KV_INLINE float sum_register(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

KV_INLINE uint16_t read_half(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// A table of 16 bytes, in both halves of a register.
struct ByteTable {
  alignas(16) uint8_t bytes[16];
  KV_INLINE __m256i load_both() const {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
  }
};

// Low or high bytes of the code values.
template <uint8_t bits>
constexpr ByteTable value_table(int shift) {
  ByteTable t{};
  for (uint32_t i = 0; i < 1u << bits; ++i) {
    t.bytes[i] = static_cast<uint8_t>(static_cast<uint16_t>(code_value(bits, i)) >> shift);
  }
  return t;
}

struct ValueTables {
  __m256i low, high;
};

// kernels_avx2_unpack.cc, kernels_avx2_codes.cc, kernels_avx2_attention.cc; what they do:
// codec/kernels.h.
void unpack(const uint8_t* codes, size_t rows, uint32_t dim, uint8_t bits, int16_t* out);
void order_query(const int16_t* q, uint32_t dim, uint8_t bits, int16_t* out);
void dot_codes(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows,
               uint32_t dim, uint8_t bits, int32_t* dots);
void score_codes(const int32_t* dots, const uint8_t* scales, size_t rows, float factor,
                 float offset, float* scores);
void dot_exact(const float* q, const float* k, size_t rows, uint32_t dim, float* out);
void add_codes(const int16_t* weights, const float* factors, size_t count, const uint8_t* codes,
               uint32_t dim, uint8_t bits, float* acc, size_t stride);
void add_exact(const float* weights, const float* v, size_t rows, uint32_t dim, float* acc);
void merge(float* acc, float a, const float* x, float b, size_t n);
float largest(const float* x, size_t n);
float exp_weights(float* x, size_t n, float max);
float quantize_weights(const float* w, const float* scales, int16_t* out);

}  // namespace kv::avx2

#pragma GCC pop_options
