// Kernels of transform coding: its inner loops as a table of functions.
//
// The product with the basis leaves a processor's integer units idle, which is what the entropy
// decoder needs: the product takes values of a stream along with it (IntegerRun).
//
// The scalar set is the specification (codec/TRANSFORM.md); every other gives the same bits for the
// same input. Functions are pure; pointers may be unaligned. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels.h"

namespace kv {

inline constexpr uint32_t kLanes = 32;         ///< interleaved states of one stream
inline constexpr uint32_t kProductRows = 4;    ///< of a tile
inline constexpr uint32_t kProductTerms = 32;  ///< at most, of a tile
inline constexpr uint32_t kPanelColumns = 64;  ///< of a matrix at a time; 32 in the last panel
/// Columns of a matrix (…, n): those that are missing are zeros.
constexpr size_t padded(size_t n) { return (n + 31) / 32 * 32; }
/// The result of decode_integers if the words end too early.
inline constexpr size_t kNoWords = SIZE_MAX;

/// An entry of a decoding table of kTableTotal slots: count | (slot - start) << 12 | value << 24.
constexpr uint32_t slot_entry(uint32_t count, uint32_t offset, int value) {
  return count | offset << 12 | static_cast<uint32_t>(value) << 24;
}
/// One step of one state. False: a word is needed and there is none.
inline bool step_state(uint32_t& state, const uint16_t*& words, const uint16_t* end,
                       const uint32_t* table, int16_t& out) {
  const uint32_t entry = table[state & 4095];
  out = static_cast<int16_t>(static_cast<int32_t>(entry) >> 24);
  state = (entry & 4095) * (state >> 12) + (entry >> 12 & 4095);
  if (state >= 1u << 16) return true;
  if (words == end) return false;
  state = state << 16 | *words++;
  return true;
}
/// Up to kLanes values, one of each state, in order.
inline bool step_states(uint32_t* states, const uint16_t*& words, const uint16_t* end,
                        const uint32_t* table, size_t count, int16_t* out) {
  for (size_t lane = 0; lane < count; ++lane) {
    if (!step_state(states[lane], words, end, table, out[lane])) return false;
  }
  return true;
}

/// The rest of one component's values in a stream, `at` … `end` - 1 of them. `end` is a
/// multiple of kLanes; words can be read kLanes beyond those of as many values.
struct IntegerRun {
  uint32_t* states = nullptr;  ///< kLanes
  const uint32_t* table = nullptr;
  const uint16_t* words = nullptr;
  int16_t* out = nullptr;
  size_t at = 0, end = 0;
};

/// Some terms of the sums of kProductRows rows: those that are zero in all of them are left out,
/// which changes no sum.
struct ProductTile {
  uint32_t count = 0;
  uint16_t which[kProductTerms];
  float values[kProductTerms][kProductRows];
};

struct TransformKernels {
  /// `count` values: value i from state i % kLanes. Returns the words taken, or kNoWords.
  size_t (*decode_integers)(uint32_t* states, const uint16_t* words, size_t word_count,
                            const uint32_t* table, size_t count, int16_t* out);
  /// Tiles of integers (count, stride), count at most kProductTerms. `tiles` is rounded up to a
  /// multiple of 4: that many are written, and their rows read.
  void (*make_tiles)(const int16_t* integers, size_t stride, size_t count, size_t tiles,
                     ProductTile* out);
  /// For row r of every tile (kProductRows each) and each of `columns` (32 or 64) columns j:
  /// to[r][j] = from[r][j], then fma(values[i][r], panel[which[i]][j], to[r][j]) for i = 0 … in
  /// order. panel (…, columns), from and to with the strides given; from_stride may be 0. Some of
  /// the values of `beside` are decoded along with it.
  void (*add_product)(const ProductTile* in, size_t tiles, const float* panel, size_t columns,
                      const float* from, size_t from_stride, float* to, size_t to_stride,
                      IntegerRun& beside);
};

const TransformKernels& scalar_transform_kernels();
#if defined(__x86_64__)
const TransformKernels& avx2_transform_kernels();    ///< only where avx2_kernels() are
const TransformKernels& avx512_transform_kernels();  ///< only where avx512_kernels() are
#endif
/// The transform's kernels that go with a set of the other kernels.
const TransformKernels& transform_kernels(const Kernels& kernels);

}  // namespace kv
