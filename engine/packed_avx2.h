// For the AVX2 and AVX-512 kernel files only: packed groups (packed.h) as vectors of small
// integers.
//
// Only functions marked KV_AVX2 may run these instructions: after avx2_engine_kernels() has asked
// the machine. Pure functions, any thread.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "engine/packed.h"

#define KV_AVX2 __attribute__((target("avx2,fma,f16c")))
#define KV_AVX2_INLINE KV_AVX2 __attribute__((always_inline)) inline

namespace kv::avx2 {

KV_AVX2 inline float lanes_sum(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}

// 32 small integers and what PackedGroup has beside them.
struct Group {
  __m256i q;
  float scale[2];
  float offset;
};

KV_AVX2 inline float half(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return _cvtsh_ss(h);
}

KV_AVX2 inline __m128i load16(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

KV_AVX2 inline __m256i load32(const uint8_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}

// 16 bytes: the low nibbles, then the high ones.
KV_AVX2 inline __m256i nibbles_of_16(const uint8_t* p) {
  __m128i q = load16(p);
  return _mm256_and_si256(_mm256_set_m128i(_mm_srli_epi16(q, 4), q), _mm256_set1_epi8(15));
}

// Of 32 bytes: the low nibbles, or the high ones.
KV_AVX2 inline __m256i nibbles_of_32(__m256i q, bool high) {
  return _mm256_and_si256(high ? _mm256_srli_epi16(q, 4) : q, _mm256_set1_epi8(15));
}

template <TensorType>
KV_AVX2 Group unpack(const uint8_t* row, uint32_t g);

template <>
KV_AVX2 inline Group unpack<TensorType::q4_1>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g * 20;
  float scale = half(b);
  return {nibbles_of_16(b + 4), {scale, scale}, half(b + 2)};
}

template <>
KV_AVX2 inline Group unpack<TensorType::q5_0>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g * 22;
  int bits;
  std::memcpy(&bits, b + 2, 4);
  // Byte j gets the bits' byte j / 8; all ones after the comparison where bit j % 8 is set.
  const __m256i spread =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i others = _mm256_set1_epi64x(0x7fbfdfeff7fbfdfe);
  __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(bits), spread);
  __m256i set = _mm256_cmpeq_epi8(_mm256_or_si256(bytes, others), _mm256_set1_epi8(-1));
  // A nibble without its fifth bit is 16 less: its high four bits are ones.
  __m256i q =
      _mm256_or_si256(nibbles_of_16(b + 6), _mm256_andnot_si256(set, _mm256_set1_epi8(-16)));
  float scale = half(b);
  return {q, {scale, scale}, 0};
}

template <>
KV_AVX2 inline Group unpack<TensorType::q8_0>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g * 34;
  float scale = half(b);
  return {load32(b + 2), {scale, scale}, 0};
}

template <>
KV_AVX2 inline Group unpack<TensorType::q4_k>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g / 8 * 144;
  uint32_t i = g % 8, scale, least;
  q4_k_scales(b + 4, i, scale, least);
  float d = half(b) * static_cast<float>(scale);
  return {nibbles_of_32(load32(b + 16 + i / 2 * 32), i % 2 != 0),
          {d, d},
          -(half(b + 2) * static_cast<float>(least))};
}

template <>
KV_AVX2 inline Group unpack<TensorType::q6_k>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g / 8 * 210;
  uint32_t i = g % 4, half_block = g % 8 / 4;
  const auto* scales = reinterpret_cast<const int8_t*>(b + 192 + g % 8 * 2);
  __m256i low = nibbles_of_32(load32(b + half_block * 64 + i % 2 * 32), i >= 2);
  __m256i pairs = _mm256_srl_epi16(load32(b + 128 + half_block * 32),
                                   _mm_cvtsi32_si128(static_cast<int>(2 * i)));
  __m256i high = _mm256_slli_epi16(_mm256_and_si256(pairs, _mm256_set1_epi8(3)), 4);
  float d = half(b + 208);
  return {_mm256_sub_epi8(_mm256_or_si256(low, high), _mm256_set1_epi8(32)),
          {d * static_cast<float>(scales[0]), d * static_cast<float>(scales[1])},
          0};
}

// Values 8 k … 8 k + 7 of the group, as floats.
template <int k>
KV_AVX2 inline __m256 floats(__m256i q) {
  __m128i half_group = _mm256_extracti128_si256(q, k / 2);
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(k % 2 == 0 ? half_group : _mm_srli_si128(half_group, 8)));
}

}  // namespace kv::avx2
