// The scalar kernels of transform coding, and which set goes with which. NEON takes these: their
// loops are simple enough for a compiler that may assume fma.
#include "codec/transform_kernels.h"

#include <algorithm>
#include <cmath>

namespace kv {
namespace {

size_t decode_integers(uint32_t* states, const uint16_t* words, size_t word_count,
                       const uint32_t* table, size_t count, int16_t* out) {
  const uint16_t *at = words, *end = words + word_count;
  for (size_t i = 0; i < count; i += kLanes) {
    const size_t some = std::min<size_t>(kLanes, count - i);
    if (!step_states(states, at, end, table, some, out + i)) return kNoWords;
  }
  return static_cast<size_t>(at - words);
}

void make_tiles(const int16_t* integers, size_t stride, size_t count, size_t tiles,
                ProductTile* out) {
  for (size_t t = 0; t < (tiles + 3) / 4 * 4; ++t) {
    ProductTile& tile = out[t];
    tile.count = 0;
    for (size_t k = 0; k < count; ++k) {
      const int16_t* from = integers + k * stride + t * kProductRows;
      bool any = false;
      for (size_t r = 0; r < kProductRows; ++r) {
        tile.values[tile.count][r] = from[r];
        any |= from[r] != 0;
      }
      tile.which[tile.count] = static_cast<uint16_t>(k);
      tile.count += any ? 1 : 0;
    }
  }
}

void add_product(const ProductTile* in, size_t tiles, const float* panel, size_t columns,
                 const float* from, size_t from_stride, float* to, size_t to_stride, IntegerRun&) {
  for (size_t r = 0; r < tiles * kProductRows; ++r, from += from_stride, to += to_stride) {
    const ProductTile& tile = in[r / kProductRows];
    if (from != to) std::copy_n(from, columns, to);
    for (size_t i = 0; i < tile.count; ++i) {
      const float x = tile.values[i][r % kProductRows];
      const float* __restrict values = panel + tile.which[i] * columns;
      float* __restrict sums = to;
      for (size_t j = 0; j < columns; ++j) sums[j] = std::fma(x, values[j], sums[j]);
    }
  }
}

}  // namespace

const TransformKernels& scalar_transform_kernels() {
  static constexpr TransformKernels kScalar = {decode_integers, make_tiles, add_product};
  return kScalar;
}

const TransformKernels& transform_kernels(const Kernels& kernels) {
#if defined(__x86_64__)
  if (&kernels == avx512_kernels()) return avx512_transform_kernels();
  if (&kernels == avx2_kernels()) return avx2_transform_kernels();
#endif
  (void)kernels;
  return scalar_transform_kernels();
}

}  // namespace kv
