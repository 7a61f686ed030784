// Products with bands and transposition with AVX2. See bands.h.
//
// Only functions marked KV_AVX2 may run these instructions: after avx2_engine_kernels() has asked
// the machine.
#include <immintrin.h>

#include "engine/avx2.h"
#include "engine/band_tiles.h"

namespace kv {
namespace {

struct Avx2Bands {
  static constexpr uint32_t kRows = 6, kColumns = 16;

  template <uint32_t rows>
  KV_AVX2 static void tile(const BandProduct& p) {
    __m256 sums[rows][2];
#pragma GCC unroll 6  // here and below so that arrays are registers
    for (uint32_t r = 0; r < rows; ++r) {
      const float* out = p.out + r * p.out_stride;
      sums[r][0] = p.go_on ? load(out, p.columns) : _mm256_setzero_ps();
      sums[r][1] = p.go_on && p.columns > 8 ? load(out + 8, p.columns - 8) : _mm256_setzero_ps();
    }
    RowsOfThree<rows> a(p);
    const float* line = p.band;
#pragma GCC unroll 1
    for (uint32_t k = 0; k < p.depth; ++k, line += p.band_stride) {
      const __m256 b[2] = {_mm256_loadu_ps(line), _mm256_loadu_ps(line + 8)};
#pragma GCC unroll 6
      for (uint32_t r = 0; r < rows; ++r) {
        const __m256 x = _mm256_broadcast_ss(a.at[r / 3] + r % 3 * p.a_stride);
        sums[r][0] = _mm256_fmadd_ps(x, b[0], sums[r][0]);
        sums[r][1] = _mm256_fmadd_ps(x, b[1], sums[r][1]);
      }
#pragma GCC unroll 2
      for (uint32_t g = 0; g < a.kGroups; ++g) ++a.at[g];
    }
#pragma GCC unroll 6
    for (uint32_t r = 0; r < rows; ++r) {
      store(p.out + r * p.out_stride, sums[r][0], p.columns);
      if (p.columns > 8) store(p.out + r * p.out_stride + 8, sums[r][1], p.columns - 8);
    }
  }

 private:
  KV_AVX2_INLINE static __m256i mask_of(uint32_t columns) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(columns)), lane);
  }
  KV_AVX2_INLINE static __m256 load(const float* out, uint32_t columns) {
    return columns >= 8 ? _mm256_loadu_ps(out) : _mm256_maskload_ps(out, mask_of(columns));
  }
  KV_AVX2_INLINE static void store(float* out, __m256 sums, uint32_t columns) {
    if (columns >= 8) return _mm256_storeu_ps(out, sums);
    _mm256_maskstore_ps(out, mask_of(columns), sums);
  }
};

// 8 x 8 values: out[k * kBandColumns + j] = rows[j * stride + k].
KV_AVX2_INLINE void transpose_eight(const float* rows, size_t stride, float* out) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (uint32_t j = 0; j < 8; ++j) r[j] = _mm256_loadu_ps(rows + j * stride);
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 8; j += 2) {
    t[j] = _mm256_unpacklo_ps(r[j], r[j + 1]);
    t[j + 1] = _mm256_unpackhi_ps(r[j], r[j + 1]);
  }
#pragma GCC unroll 2
  for (uint32_t j = 0; j < 8; j += 4) {
    r[j] = _mm256_shuffle_ps(t[j], t[j + 2], 0x44);
    r[j + 1] = _mm256_shuffle_ps(t[j], t[j + 2], 0xee);
    r[j + 2] = _mm256_shuffle_ps(t[j + 1], t[j + 3], 0x44);
    r[j + 3] = _mm256_shuffle_ps(t[j + 1], t[j + 3], 0xee);
  }
#pragma GCC unroll 4
  for (uint32_t j = 0; j < 4; ++j) {
    _mm256_storeu_ps(out + j * kBandColumns, _mm256_permute2f128_ps(r[j], r[j + 4], 0x20));
    _mm256_storeu_ps(out + (j + 4) * kBandColumns, _mm256_permute2f128_ps(r[j], r[j + 4], 0x31));
  }
}

}  // namespace

void avx2_band_product(const BandProduct& p) { multiply_by_band_tiles<Avx2Bands>(p); }

KV_AVX2 void avx2_transpose(const float* rows, size_t stride, uint32_t columns, uint32_t depth,
                            float* out) {
  if (columns < kBandColumns || depth % 8 != 0) {
    return scalar_transpose(rows, stride, columns, depth, out);
  }
  for (uint32_t j = 0; j < kBandColumns; j += 8) {
    for (uint32_t k = 0; k < depth; k += 8) {
      transpose_eight(rows + j * stride + k, stride, out + size_t{k} * kBandColumns + j);
    }
  }
}

}  // namespace kv
