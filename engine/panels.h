// Panels: a packed weight matrix in which 16 rows stand side by side, so that a register holds one
// column of 16 rows and no bit has to be moved across it.
//
// A panel is 16 rows (the last one filled up with zeros), made of groups of 32 columns, one behind
// the other. A group (sizes in bytes; lane r belongs to row r):
//   codes   low nibbles  4 lines of 16 32-bit lanes: nibble i of line k is column 8 k + i (Q4_1,
//                        Q5_0, Q4_K, Q6_K)
//           fifth bits   1 line: bit panel_fifth_bit(j) is column j's                      (Q5_0)
//           high pairs   2 lines: bits 2 i … of line k are column 16 k + i's               (Q6_K)
//           values       32 x 16: column by column             (Q8_0: bytes; F16; F32)
//   scales  none of F16 and F32; fp16 x 16; Q4_1 also fp16 x 16 offsets; Q4_K uint8 x 16 scales and
//   x 16 minima; Q6_K
//           int8 x 16 for columns 0-15 and x 16 for 16-31
// Before every 8 groups: Q4_K fp16 x 16 scales of scales and x 16 of minima, Q6_K fp16 x 16 scales
// of scales. Weights are those of packed.h. Pure, any thread.
#pragma once

#include <cstdint>

#include "engine/kernels.h"

namespace kv {

inline constexpr uint32_t kPanelRows = 16;

/// The places of the parts of a type's group; `super` stands before every 8 groups.
struct PanelLayout {
  uint32_t high, scales, group, super;
};
constexpr PanelLayout panel_layout(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return {2048, 2048, 2048, 0};
    case TensorType::f16:
      return {1024, 1024, 1024, 0};
    case TensorType::q4_1:
      return {256, 256, 320, 0};
    case TensorType::q5_0:
      return {256, 320, 352, 0};
    case TensorType::q8_0:
      return {512, 512, 544, 0};
    case TensorType::q4_k:
      return {256, 256, 288, 64};
    case TensorType::q6_k:
      return {256, 384, 416, 32};
  }
  return {};
}
/// Types whose weights are values as they are.
constexpr bool panel_values(TensorType type) {
  return type == TensorType::f32 || type == TensorType::f16;
}
/// Bytes of a value that stands by itself, or 0 where bits of several columns share a lane.
constexpr uint32_t panel_value_bytes(TensorType type) {
  return type == TensorType::f32 ? 4 : type == TensorType::f16 ? 2 : type == TensorType::q8_0;
}
/// Types of four and five bits: products are of integers, with rounded activations (rounded.h);
/// codes are unsigned and have offsets.
constexpr bool panel_integers(TensorType type) {
  return type == TensorType::q4_1 || type == TensorType::q5_0 || type == TensorType::q4_k;
}
/// Q5_0: of column 8 k + i, bit 2 k + i % 2 of byte i / 2, the byte that nibble i is in.
constexpr uint32_t panel_fifth_bit(uint32_t column) {
  return column % 8 / 2 * 8 + column / 8 * 2 + column % 2;
}

/// Bytes of one panel; columns a multiple of 32, of 256 for Q4_K and Q6_K.
constexpr uint64_t panel_bytes(TensorType type, uint32_t columns) {
  const PanelLayout at = panel_layout(type);
  return uint64_t{columns / 32} * at.group + uint64_t{columns / 256} * at.super;
}
/// The begin of group `g` of a panel, and what stands before its 8 groups.
constexpr uint64_t panel_group(TensorType type, uint32_t g) {
  const PanelLayout at = panel_layout(type);
  return uint64_t{g} * at.group + (at.super == 0 ? 0 : uint64_t{g / 8 + 1} * at.super);
}
constexpr uint64_t panel_super(TensorType type, uint32_t g) {
  const PanelLayout at = panel_layout(type);
  return uint64_t{g / 8} * (8 * at.group + at.super);
}

/// The panel of `rows` (1 … 16) weight rows, `stride` bytes apart: out, panel_bytes() of zeros.
void make_panel(TensorType type, const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                uint8_t* out);

}  // namespace kv
