// The plain way is loops without an exit within a chunk, for the compiler to widen.
#include "index/token_chunks.h"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace kv {
namespace {

constexpr uint32_t kHalfChunk = kChunkTokens / 2;
constexpr uint32_t kLowBytes = kChunkTokens * 2, kHighBytes = kHalfChunk;

bool chunk16(const uint8_t* low_bytes, const Token* other) {
  uint16_t low[kChunkTokens];
  std::memcpy(low, low_bytes, sizeof low);
  uint32_t differ = 0;
  for (uint32_t j = 0; j < kChunkTokens; ++j) differ |= low[j] ^ static_cast<uint32_t>(other[j]);
  return differ == 0;
}

bool chunk20(const uint8_t* low_bytes, const uint8_t* high, const Token* other) {
  uint16_t low[kChunkTokens];
  std::memcpy(low, low_bytes, sizeof low);
  uint32_t differ = 0;
  for (uint32_t j = 0; j < kHalfChunk; ++j) {
    const uint32_t a = low[j] | uint32_t{high[j]} << 28 >> 12;
    const uint32_t b = low[j + kHalfChunk] | uint32_t{high[j]} >> 4 << 16;
    differ |=
        (a ^ static_cast<uint32_t>(other[j])) | (b ^ static_cast<uint32_t>(other[j + kHalfChunk]));
  }
  return differ == 0;
}

uint32_t plain16(const uint8_t* low, const Token* other, uint32_t chunks) {
  uint32_t i = 0;
  while (i < chunks && chunk16(low + i * kLowBytes, other + i * kChunkTokens)) ++i;
  return i;
}

uint32_t plain20(const uint8_t* low, const uint8_t* high, const Token* other, uint32_t chunks) {
  uint32_t i = 0;
  while (i < chunks &&
         chunk20(low + i * kLowBytes, high + i * kHighBytes, other + i * kChunkTokens)) {
    ++i;
  }
  return i;
}

#if defined(__x86_64__)

[[gnu::target("avx2")]] __m256i low8(const uint8_t* at) {
  return _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(at)));
}
[[gnu::target("avx2")]] __m256i high8(const uint8_t* at) {
  return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
}
[[gnu::target("avx2")]] __m256i differ8(__m256i packed, const Token* other) {
  return _mm256_xor_si256(packed, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(other)));
}

[[gnu::target("avx2")]] uint32_t wide16(const uint8_t* low, const Token* other, uint32_t chunks) {
  for (uint32_t i = 0; i < chunks; ++i, low += kLowBytes, other += kChunkTokens) {
    __m256i differ = _mm256_setzero_si256();
    for (uint32_t j = 0; j < kChunkTokens; j += 8) {
      differ = _mm256_or_si256(differ, differ8(low8(low + 2 * j), other + j));
    }
    if (!_mm256_testz_si256(differ, differ)) return i;
  }
  return chunks;
}

[[gnu::target("avx2")]] uint32_t wide20(const uint8_t* low, const uint8_t* high, const Token* other,
                                        uint32_t chunks) {
  for (uint32_t i = 0; i < chunks;
       ++i, low += kLowBytes, high += kHighBytes, other += kChunkTokens) {
    __m256i differ = _mm256_setzero_si256();
    for (uint32_t j = 0; j < kHalfChunk; j += 8) {
      const __m256i both = high8(high + j);
      const __m256i a = _mm256_srli_epi32(_mm256_slli_epi32(both, 28), 12);
      const __m256i b = _mm256_slli_epi32(_mm256_srli_epi32(both, 4), 16);
      differ = _mm256_or_si256(differ, differ8(_mm256_or_si256(low8(low + 2 * j), a), other + j));
      differ = _mm256_or_si256(differ, differ8(_mm256_or_si256(low8(low + 2 * (j + kHalfChunk)), b),
                                               other + j + kHalfChunk));
    }
    if (!_mm256_testz_si256(differ, differ)) return i;
  }
  return chunks;
}

constexpr ChunkCompare kWideChunks{wide16, wide20};
#endif

}  // namespace

const ChunkCompare kPlainChunks{plain16, plain20};

const ChunkCompare* avx2_chunks() {
#if defined(__x86_64__)
  static const bool supported = __builtin_cpu_supports("avx2");
  return supported ? &kWideChunks : nullptr;
#else
  return nullptr;
#endif
}

const ChunkCompare& best_chunks() {
  static const ChunkCompare& best = avx2_chunks() ? *avx2_chunks() : kPlainChunks;
  return best;
}

}  // namespace kv
