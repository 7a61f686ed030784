// The multiple-choice knapsack behind bit plans. See bit_plan.h.
#include "codec/bit_plan.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

namespace kv {
namespace {

uint64_t least_bytes(const std::vector<BitChoice>& item) {
  return std::min_element(item.begin(), item.end(),
                          [](const auto& a, const auto& b) { return a.bytes < b.bytes; })
      ->bytes;
}

}  // namespace

Result<std::vector<size_t>> best_choices(std::span<const std::vector<BitChoice>> items,
                                         uint64_t budget) {
  uint64_t least = 0, step = 0, most = 0;
  for (const auto& item : items) {
    if (item.empty() || item.size() > 255) {
      return invalid_argument("bit plan: " + std::to_string(item.size()) +
                              " choices for an item, expected 1 to 255");
    }
    const uint64_t floor = least_bytes(item);
    least += floor;
    uint64_t largest = 0;
    for (const BitChoice& c : item) {
      step = std::gcd(step, c.bytes - floor);
      largest = std::max(largest, c.bytes - floor);
    }
    most += largest;
  }
  if (least > budget) {
    return Status(StatusCode::resource_exhausted, "bit plan: at least " + std::to_string(least) +
                                                      " bytes are needed, the budget is " +
                                                      std::to_string(budget));
  }
  // The bits left to spend above each item's smallest choice, in steps.
  const uint64_t spare = std::min(budget - least, most);
  step = std::max<uint64_t>(step, 1);
  const uint64_t widest = std::max<uint64_t>(kMaxPlanCells / std::max<size_t>(items.size(), 1), 1);
  if (spare / step >= widest) step = spare / widest + 1;
  const auto width = static_cast<size_t>(spare / step) + 1;
  std::vector<double> cost(width, 0.0), next(width);
  std::vector<uint8_t> taken(items.size() * width);
  for (size_t i = 0; i < items.size(); ++i) {
    const uint64_t floor = least_bytes(items[i]);
    std::fill(next.begin(), next.end(), std::numeric_limits<double>::infinity());
    for (size_t c = 0; c < items[i].size(); ++c) {
      const uint64_t steps = (items[i][c].bytes - floor + step - 1) / step;
      for (size_t w = steps; w < width; ++w) {
        const double sum = cost[w - steps] + items[i][c].divergence;
        if (sum >= next[w]) continue;
        next[w] = sum;
        taken[i * width + w] = static_cast<uint8_t>(c);
      }
    }
    std::swap(cost, next);
  }
  std::vector<size_t> out(items.size());
  size_t w = width - 1;
  for (size_t i = items.size(); i-- > 0;) {
    out[i] = taken[i * width + w];
    w -= static_cast<size_t>((items[i][out[i]].bytes - least_bytes(items[i]) + step - 1) / step);
  }
  return out;
}

}  // namespace kv
