// Products with bands with AVX-512. See bands.h.
#include <immintrin.h>

#include "engine/avx512.h"
#include "engine/band_tiles.h"

namespace kv {
namespace {

struct Avx512Bands {
  static constexpr uint32_t kRows = 12, kColumns = kBandColumns;

  template <uint32_t rows>
  KV_AVX512 static void tile(const BandProduct& p) {
    const uint32_t mask = p.columns < 32 ? (1u << p.columns) - 1 : ~0u;
    const auto low = static_cast<__mmask16>(mask), high = static_cast<__mmask16>(mask >> 16);
    __m512 sums[rows][2];
#pragma GCC unroll 12  // here and below so that arrays are registers
    for (uint32_t r = 0; r < rows; ++r) {
      const float* out = p.out + r * p.out_stride;
      sums[r][0] = p.go_on ? _mm512_maskz_loadu_ps(low, out) : _mm512_setzero_ps();
      sums[r][1] = p.go_on ? _mm512_maskz_loadu_ps(high, out + 16) : _mm512_setzero_ps();
    }
    RowsOfThree<rows> a(p);
    const float* line = p.band;
#pragma GCC unroll 1
    for (uint32_t k = 0; k < p.depth; ++k, line += p.band_stride) {
      const __m512 b[2] = {_mm512_loadu_ps(line), _mm512_loadu_ps(line + 16)};
#pragma GCC unroll 12
      for (uint32_t r = 0; r < rows; ++r) {
        const __m512 x = _mm512_set1_ps(a.at[r / 3][r % 3 * p.a_stride]);
        sums[r][0] = _mm512_fmadd_ps(x, b[0], sums[r][0]);
        sums[r][1] = _mm512_fmadd_ps(x, b[1], sums[r][1]);
      }
#pragma GCC unroll 4
      for (uint32_t g = 0; g < a.kGroups; ++g) ++a.at[g];
    }
#pragma GCC unroll 12
    for (uint32_t r = 0; r < rows; ++r) {
      float* out = p.out + r * p.out_stride;
      _mm512_mask_storeu_ps(out, low, sums[r][0]);
      _mm512_mask_storeu_ps(out + 16, high, sums[r][1]);
    }
  }
};

}  // namespace

void avx512_band_product(const BandProduct& p) { multiply_by_band_tiles<Avx512Bands>(p); }

}  // namespace kv
