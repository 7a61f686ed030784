// For the kernel files only: products with bands (bands.h) from tiles of some rows times some
// columns whose sums fit in registers.
//
// A Set says how many: kRows and kColumns; its tile<rows> does up to kColumns columns of one.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "engine/bands.h"

namespace kv {

using BandTile = void (*)(const BandProduct& p);

template <typename Set, size_t... i>
constexpr std::array<BandTile, sizeof...(i)> band_tiles(std::index_sequence<i...>) {
  return {Set::template tile<i + 1>...};
}

/// BandKernel: tiles of about equal numbers of rows, so that one row more never costs a whole tile.
template <typename Set>
void multiply_by_band_tiles(const BandProduct& whole) {
  static constexpr auto kTiles = band_tiles<Set>(std::make_index_sequence<Set::kRows>());
  const uint32_t tiles = (whole.rows + Set::kRows - 1) / Set::kRows;
  BandProduct p = whole;
  for (uint32_t tile = 0; tile < tiles; ++tile) {
    const auto left = static_cast<uint32_t>(whole.rows - (p.a - whole.a) / whole.a_stride);
    p.rows = left / (tiles - tile);
    for (uint32_t column = 0; column < whole.columns; column += Set::kColumns) {
      BandProduct part = p;
      part.band += column;
      part.out += column;
      part.columns = std::min(Set::kColumns, whole.columns - column);
      kTiles[p.rows - 1](part);
    }
    p.a += p.rows * p.a_stride;
    p.out += p.rows * p.out_stride;
  }
}

/// Row r of rows p.a … of a tile, by addresses that the processor adds up itself: three rows share
/// a register.
template <uint32_t rows>
struct RowsOfThree {
  explicit RowsOfThree(const BandProduct& p) {
    for (uint32_t g = 0; g < kGroups; ++g) at[g] = p.a + size_t{3} * g * p.a_stride;
  }
  static constexpr uint32_t kGroups = (rows + 2) / 3;
  const float* at[kGroups];
};

}  // namespace kv
