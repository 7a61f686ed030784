// Kernels of transform coding: its two inner loops as a table of functions.
//
// The scalar set is the specification (codec/TRANSFORM.md); every other gives the same bits for the
// same input. Functions are pure; pointers may be unaligned. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "codec/kernels.h"

namespace kv {

inline constexpr uint32_t kLanes = 32;       ///< interleaved states of one stream
inline constexpr uint32_t kProductRows = 8;  ///< rows of a tile
inline constexpr uint32_t kStrideValues = 32;
/// Values of a matrix's or an output's row: padded with zeros.
constexpr size_t padded(size_t values) {
  return (values + kStrideValues - 1) / kStrideValues * kStrideValues;
}
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

struct TransformKernels {
  /// `count` values: value i from state i % kLanes. Returns the words taken, or kNoWords.
  size_t (*decode_integers)(uint32_t* states, const uint16_t* words, size_t word_count,
                            const uint32_t* table, size_t count, int16_t* out);
  /// out[r][j] = init[j], then fma(in[k][r], matrix[k][j], out[r][j]) for k = 0 … n - 1 in order.
  /// in (tiles, n, kProductRows), matrix (n, stride), init (stride), out (tiles * kProductRows,
  /// out_stride); stride is a multiple of kStrideValues.
  void (*product)(const float* in, size_t tiles, size_t n, const float* matrix, size_t stride,
                  const float* init, float* out, size_t out_stride);
};

const TransformKernels& scalar_transform_kernels();
#if defined(__x86_64__)
const TransformKernels& avx2_transform_kernels();    ///< only where avx2_kernels() are
const TransformKernels& avx512_transform_kernels();  ///< only where avx512_kernels() are
#endif
/// The transform's kernels that go with a set of the other kernels.
const TransformKernels& transform_kernels(const Kernels& kernels);

}  // namespace kv
