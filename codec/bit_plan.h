// Bit plans: one choice of bits for every layer and side, the least divergence for a byte budget.
//
// Pure, any thread. Divergences of sides coded one at a time are taken to add up: noise of
// different layers is independent and the divergence is quadratic in it (codec/TURBOQUANT.md, "Bits
// per layer").
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "proto/status.h"

namespace kv {

/// One way of storing one side of one layer.
struct BitChoice {
  uint64_t bytes = 0;     ///< that it takes, of whatever the budget counts
  double divergence = 0;  ///< that it adds, at least 0
};

inline constexpr uint64_t kMaxPlanCells = 1u << 22;  ///< of the solver's table: items x steps

/// For every item the index of the choice taken: the least sum of divergences whose bytes are
/// within the budget (of equal ones, that with the earliest choices). Exact unless the table would
/// have more than kMaxPlanCells cells: then sizes are rounded up to coarser steps.
/// Returns: invalid_argument if an item has no choice or more than 255; resource_exhausted naming
/// the least possible size if that is over the budget.
Result<std::vector<size_t>> best_choices(std::span<const std::vector<BitChoice>> items,
                                         uint64_t budget);

}  // namespace kv
