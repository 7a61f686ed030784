// Rounded activations: 24-bit integers as three bytes each, for products with weights of four and
// five bits. A processor multiplies bytes four at a time: three of those products take less than
// the four of fp32 that they replace, and unpack the weights with less.
//
// A group of 32 columns has one scale, its largest magnitude / kRoundedMost: a value is off by at
// most half of that, beside fp32's own rounding, which for the largest is as much. Groups below
// 1e-20 are zeros; one with a NaN or an infinity has the scale NaN, and so has every output. Every
// kernel set gives the same bits. Pure, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/kernels.h"

namespace kv {

inline constexpr float kRoundedMost = 127.0f * 65536.0f, kRoundedLeast = 1e-20f;

/// Bytes of the codes of so many columns.
constexpr size_t rounded_bytes(uint32_t columns) { return size_t{columns} * 4; }

/// The rounding of one row (EngineKernels::round). A code is h 65536 + m 256 + l, bytes from -128
/// to 127. codes, rounded_bytes(columns): of each 8 columns two quads, of the even columns and of
/// the odd ones, 16 bytes each: h of the four, m of the four, l of the four, zeros. scales and sums
/// (columns / 32): a group's scale, and the sum of its codes times that.
void round_row(const float* x, uint32_t columns, int8_t* codes, float* scales, float* sums);

/// Memory of rounded rows; grows only.
class RoundedRows {
 public:
  /// `x` with its rows rounded, `columns` (a multiple of 32) each. Lives as long as this does and
  /// round() is not called again.
  Activations round(Activations x, uint32_t columns);

 private:
  std::vector<int8_t> codes_;
  Floats scales_, sums_;
};

}  // namespace kv
