// For the kernel files only: products of any size from tiles, which are a few weight rows times a
// few rows of activations whose sums fit in registers.
//
// A Set says how many: kMostRows rows of activations in one tile at most, and beside `count` of
// them weight_rows(count) weight rows. Its tile<type, many, count> does one.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "engine/kernels.h"

namespace kv {

/// y[b * y_stride + r] of `many` weight rows and `count` rows of activations.
using Tile = void (*)(const uint8_t* w, uint64_t stride, uint32_t columns, const float* x,
                      size_t x_stride, float* y, size_t y_stride);

/// Asks for `bytes` of weights some tiles after `w`. The rows of a tile stand one behind the other
/// in memory, which the machine does not guess from reading several at once: without this a product
/// took three times as long.
[[gnu::always_inline]] inline void prefetch_weights(const uint8_t* w, size_t bytes) {
  constexpr size_t kAhead = 8192;
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(w + kAhead + i);
}

template <typename Set, TensorType type, size_t... i>
constexpr std::array<Tile, sizeof...(i)> large_tiles(std::index_sequence<i...>) {
  return {Set::template tile<type, Set::weight_rows(i + 1), i + 1>...};
}
template <typename Set, TensorType type, size_t... i>
constexpr std::array<Tile, sizeof...(i)> tiles_of_one(std::index_sequence<i...>) {
  return {Set::template tile<type, 1, i + 1>...};
}

/// TypeKernels::multiply.
template <typename Set, TensorType type>
void multiply_by_tiles(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                       const Activations& x, float* y, size_t y_stride) {
  constexpr auto counts = std::make_index_sequence<Set::kMostRows>();
  static constexpr auto kLarge = large_tiles<Set, type>(counts);
  static constexpr auto kOne = tiles_of_one<Set, type>(counts);
  for (uint32_t b = 0; b < x.count; b += Set::kMostRows) {
    const uint32_t count = std::min(Set::kMostRows, x.count - b), many = Set::weight_rows(count);
    const float* xb = x.x + b * x.stride;
    float* yb = y + b * y_stride;
    uint32_t r = 0;
    for (; r + many <= rows; r += many) {
      kLarge[count - 1](w + r * stride, stride, columns, xb, x.stride, yb + r, y_stride);
    }
    for (; r < rows; ++r) {
      kOne[count - 1](w + r * stride, stride, columns, xb, x.stride, yb + r, y_stride);
    }
  }
}

}  // namespace kv
