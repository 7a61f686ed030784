// The scalar kernels of bands: what the others must give. See bands.h.
#include "engine/bands.h"

#include <algorithm>
#include <cmath>

namespace kv {

void scalar_band_product(const BandProduct& p) {
  for (uint32_t r = 0; r < p.rows; ++r) {
    float sums[kBandColumns] = {}, *out = p.out + r * p.out_stride;
    if (p.go_on) std::copy_n(out, p.columns, sums);
    const float* a = p.a + r * p.a_stride;
    for (uint32_t k = 0; k < p.depth; ++k) {
      const float* line = p.band + k * p.band_stride;
      for (uint32_t j = 0; j < p.columns; ++j) sums[j] = std::fma(a[k], line[j], sums[j]);
    }
    std::copy_n(sums, p.columns, out);
  }
}

void scalar_transpose(const float* rows, size_t stride, uint32_t columns, uint32_t depth,
                      float* out) {
  for (uint32_t k = 0; k < depth; ++k, out += kBandColumns) {
    for (uint32_t j = 0; j < kBandColumns; ++j) out[j] = j < columns ? rows[j * stride + k] : 0.0f;
  }
}

}  // namespace kv
