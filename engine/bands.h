// Bands: matrices whose columns stand side by side, 32 at a time, and products of rows of floats
// with them.
//
// A band is (depth, kBandColumns) floats, `stride` from one line to the next. An output is a chain
// of its own: from 0 on, one fused multiply-add per line of the band, in order, be it in one
// product or in several that go on. So it is a function of its row and its column alone, whatever
// is computed beside it; every set gives the same bits. Pure, nothing checked. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kv {

inline constexpr uint32_t kBandColumns = 32;

/// out (rows, columns) = a (rows, depth) times a band's first `columns` columns; each matrix'
/// stride is in floats. A whole line of the band can be read.
struct BandProduct {
  const float* a = nullptr;
  size_t a_stride = 0;
  const float* band = nullptr;
  size_t band_stride = kBandColumns;
  float* out = nullptr;
  size_t out_stride = 0;
  uint32_t rows = 0, depth = 0, columns = kBandColumns;
  bool go_on = false;  ///< chains go on from what `out` holds instead of 0
};
using BandKernel = void (*)(const BandProduct&);

/// out (depth, kBandColumns), line k of it the k-th values of `columns` rows `stride` apart; zeros
/// behind those. Every set gives the same bits.
using TransposeKernel = void (*)(const float* rows, size_t stride, uint32_t columns, uint32_t depth,
                                 float* out);

void scalar_band_product(const BandProduct& p);
void avx2_band_product(const BandProduct& p);
void avx512_band_product(const BandProduct& p);
void scalar_transpose(const float* rows, size_t stride, uint32_t columns, uint32_t depth,
                      float* out);
void avx2_transpose(const float* rows, size_t stride, uint32_t columns, uint32_t depth, float* out);

}  // namespace kv
