// For the kernel files only: products of panels (panels.h) from tiles of some panels times some
// rows of activations whose sums fit in registers.
//
// A Set says how many: kPanels, and kMostRows for its tile<type, panels, count>, kMostChained for
// its chain<type, panels, count>, which is one of TypeKernels::chain.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "engine/packed.h"
#include "engine/panels.h"
#include "engine/rounded.h"

namespace kv {

/// Asks for the `bytes` of weights that stand `ahead` of `w`. A tile asks for the same group of the
/// next one: the machine does not guess that from reading two panels at once, and a fixed distance
/// would ask for what the tile has read already. Without this a product took up to three times as
/// long.
[[gnu::always_inline]] inline void prefetch_weights(const uint8_t* w, size_t bytes, size_t ahead) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch(w + ahead + i);
}
inline constexpr size_t kWidenAhead = 8192;  // of a panel that is widened part by part

/// A scale per 16 columns.
template <TensorType type>
inline constexpr bool panel_halves = type == TensorType::q6_k;

/// y[b * y_stride + 16 * p + r] of `panels` panels, `stride` bytes apart, and `count` rows of
/// activations from x's first on.
using PanelTile = void (*)(const uint8_t* panel, uint64_t stride, uint32_t columns,
                           const Activations& x, float* y, size_t y_stride);

/// x from its row b on.
inline Activations rows_from(Activations x, uint32_t b, uint32_t columns) {
  x.x += b * x.stride;
  if (x.codes != nullptr) {
    x.codes += b * rounded_bytes(columns);
    x.scales += size_t{b} * (columns / 32);
    x.sums += size_t{b} * (columns / 32);
  }
  x.count -= b;
  return x;
}

template <typename Set, TensorType type, uint32_t panels, bool chained, size_t... i>
constexpr std::array<PanelTile, sizeof...(i)> panel_tiles(std::index_sequence<i...>) {
  if constexpr (chained) {
    return {Set::template chain<type, panels, i + 1>...};
  } else {
    return {Set::template tile<type, panels, i + 1>...};
  }
}

template <typename Set, TensorType type, bool chained>
void multiply_panels_by_tiles(const uint8_t* panels, uint64_t stride, uint32_t many,
                              uint32_t columns, const Activations& x, float* y, size_t y_stride) {
  constexpr uint32_t kMost = chained ? Set::kMostChained : Set::kMostRows;
  constexpr auto counts = std::make_index_sequence<kMost>();
  static constexpr auto kSome = panel_tiles<Set, type, Set::kPanels, chained>(counts);
  static constexpr auto kOne = panel_tiles<Set, type, 1, chained>(counts);
  for (uint32_t p = 0; p < many;) {
    const bool some = many - p >= Set::kPanels;
    for (uint32_t b = 0; b < x.count; b += kMost) {
      const uint32_t count = std::min(kMost, x.count - b);
      (some ? kSome : kOne)[count - 1](panels + p * stride, stride, columns,
                                       rows_from(x, b, columns), y + b * y_stride + p * kPanelRows,
                                       y_stride);
    }
    p += some ? Set::kPanels : 1;
  }
}

/// The kernels of a Set, whose widen<type> is TypeKernels::widen.
template <typename Set>
TypeKernels panel_kernels(TensorType type) {
  return with_type(type, []<TensorType t>() {
    return TypeKernels{multiply_panels_by_tiles<Set, t, false>,
                       multiply_panels_by_tiles<Set, t, true>, Set::template widen<t>};
  });
}
/// Types whose weights are q * scale + offset with an offset of their own.
constexpr bool has_offsets(TensorType type) {
  return type == TensorType::q4_1 || type == TensorType::q4_k;
}

TypeKernels scalar_panels(TensorType type);
TypeKernels avx2_panels(TensorType type);
TypeKernels avx512_panels(TensorType type);

}  // namespace kv
