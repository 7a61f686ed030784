// Rounding with AVX2, and what the set is. Only functions marked KV_AVX2 may run these
// instructions. See rounded.h, kernels.h.
#include <immintrin.h>

#include "engine/avx2.h"
#include "engine/panel_tiles.h"
#include "engine/rounded.h"

namespace kv {
namespace {

using namespace avx2;

KV_AVX2_INLINE __m256 magnitude(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
KV_AVX2_INLINE float largest_lane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

KV_AVX2_INLINE int32_t integers_sum(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// Codes of 8 columns as their two quads (rounded.h).
KV_AVX2_INLINE __m256i quads_of(__m256i codes) {
  const __m256i byte = _mm256_set1_epi32(255), half = _mm256_set1_epi32(128);
  const __m256i middle = _mm256_srai_epi32(_mm256_add_epi32(codes, half), 8);
  const __m256i high = _mm256_srai_epi32(_mm256_add_epi32(middle, half), 8);
  const __m256i all =
      _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(high, byte),
                                      _mm256_slli_epi32(_mm256_and_si256(middle, byte), 8)),
                      _mm256_slli_epi32(_mm256_and_si256(codes, byte), 16));
  const __m256i even_odd =
      _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  return _mm256_shuffle_epi8(even_odd, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                           0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
}

// round_row() of rounded.h.
KV_AVX2 void round_avx2(const float* x, uint32_t columns, int8_t* codes, float* scales,
                        float* sums) {
  const __m256 zero = _mm256_setzero_ps();
  for (uint32_t g = 0; g < columns / 32; ++g, x += 32, codes += rounded_bytes(32)) {
    __m256 v[4], most = zero, poison = zero;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      v[k] = _mm256_loadu_ps(x + 8 * k);
      most = _mm256_max_ps(magnitude(v[k]), most);  // of a NaN: `most`
      poison = _mm256_fmadd_ps(v[k], zero, poison);
    }
    const float size = largest_lane(most), no_number = lanes_sum(poison);
    const bool counts = size >= kRoundedLeast && no_number == 0;
    const __m256 by = _mm256_set1_ps(counts ? kRoundedMost / size : 0.0f);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m256i code =
          _mm256_cvtps_epi32(_mm256_mul_ps(counts ? v[k] : _mm256_setzero_ps(), by));
      sum = _mm256_add_epi32(sum, code);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 32 * k), quads_of(code));
    }
    scales[g] = (counts ? size / kRoundedMost : 0.0f) + no_number;
    sums[g] = static_cast<float>(integers_sum(sum)) * scales[g];
  }
}

}  // namespace

const EngineKernels* avx2_engine_kernels() {
  static constexpr EngineKernels kAvx2 = {
      "avx2", 4, avx2_panels, round_avx2, avx2_band_product, avx2_transpose};
  return avx2_kernels() == nullptr ? nullptr : &kAvx2;
}

}  // namespace kv
