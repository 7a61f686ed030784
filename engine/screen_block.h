// The memory layout of a screen (screen.h) and of the activations that it is multiplied by: what
// its kernels (kernels.h) share.
//
// Blocks of 16 rows, one behind the other; in a block, groups of 32 columns of 288 bytes: four
// lines of 64 bytes, of which byte 4 r + i of line k holds the codes of row r's columns 4 k + i
// (low nibble) and 16 + 4 k + i (high), and the rows' 16 scales (fp16). A weight is
// (code - 7.5) * scale.
#pragma once

#include <cstdint>
#include <vector>

namespace kv {

inline constexpr uint32_t kScreenRows = 16;
inline constexpr uint32_t kScreenGroupBytes = 288;

/// Activations as bytes: group g's values are code * scale[g].
struct ScreenInput {
  std::vector<int8_t> codes;
  std::vector<int32_t> codes_15;  ///< 15 times the sum of a group's codes
  std::vector<float> scale;
};

/// out (16): the products of one block's rows with an input of `groups` groups, in fp32: integers
/// within a group, a product and an addition a group, groups in order. Every set gives the same
/// bits. Returns: the highest (of NaN and another, either).
using ScreenKernel = float (*)(const uint8_t* block, uint32_t groups, const ScreenInput& x,
                               float* out);

}  // namespace kv
