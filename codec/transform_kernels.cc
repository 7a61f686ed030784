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

void product(const float* in, size_t tiles, size_t n, const float* matrix, size_t stride,
             const float* init, float* out, size_t out_stride) {
  for (size_t r = 0; r < tiles * kProductRows; ++r) {
    const float* row = in + r / kProductRows * n * kProductRows + r % kProductRows;
    float* to = out + r * out_stride;
    std::copy_n(init, stride, to);
    for (size_t k = 0; k < n; ++k) {
      const float x = row[k * kProductRows];
      const float* values = matrix + k * stride;
      for (size_t j = 0; j < stride; ++j) to[j] = std::fma(x, values[j], to[j]);
    }
  }
}

}  // namespace

const TransformKernels& scalar_transform_kernels() {
  static constexpr TransformKernels kScalar = {decode_integers, product};
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
