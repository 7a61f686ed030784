// See rounded.h.
#include "engine/rounded.h"

#include <algorithm>
#include <cmath>

namespace kv {
namespace {

// Codes of 8 columns as their two quads.
void put_eight(const int32_t* codes, int8_t* out) {
  std::fill_n(out, rounded_bytes(8), int8_t{0});
  for (uint32_t i = 0; i < 8; ++i) {
    int8_t* quad = out + i % 2 * 16 + i / 2;
    int32_t left = codes[i];
    for (uint32_t digit = 0; digit < 3; ++digit) {
      const auto low = static_cast<int8_t>(static_cast<uint8_t>(left));
      quad[(2 - digit) * 4] = low;
      left = (left - low) / 256;
    }
  }
}

}  // namespace

void round_row(const float* x, uint32_t columns, int8_t* codes, float* scales, float* sums) {
  for (uint32_t g = 0; g < columns / 32; ++g, x += 32) {
    float most = 0, poison = 0;
    for (uint32_t i = 0; i < 32; ++i) {
      most = std::fabs(x[i]) > most ? std::fabs(x[i]) : most;
      poison += x[i] * 0.0f;  // NaN if x[i] is not finite
    }
    const bool counts = most >= kRoundedLeast && !std::isnan(poison);
    const float by = counts ? kRoundedMost / most : 0.0f;
    int32_t sum = 0, eight[8];
    for (uint32_t i = 0; i < 32; ++i) {
      eight[i % 8] = counts ? static_cast<int32_t>(std::lrint(x[i] * by)) : 0;
      sum += eight[i % 8];
      if (i % 8 == 7) put_eight(eight, codes), codes += rounded_bytes(8);
    }
    scales[g] = (counts ? most / kRoundedMost : 0.0f) + poison;
    sums[g] = static_cast<float>(sum) * scales[g];
  }
}

Activations RoundedRows::round(Activations x, uint32_t columns) {
  const size_t groups = columns / 32, bytes = rounded_bytes(columns);
  if (codes_.size() < x.count * bytes) {
    scales_.resize(x.count * groups);
    sums_.resize(x.count * groups);
    codes_.resize(x.count * bytes);
  }
  for (uint32_t b = 0; b < x.count; ++b) {
    engine_kernels().round(x.x + b * x.stride, columns, codes_.data() + b * bytes,
                           scales_.data() + b * groups, sums_.data() + b * groups);
  }
  x.codes = codes_.data();
  x.scales = scales_.data();
  x.sums = sums_.data();
  return x;
}

}  // namespace kv
