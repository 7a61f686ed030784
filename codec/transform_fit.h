// Fitting of transforms: mean and covariance of rows → basis; integers of rows → tables
// (codec/TRANSFORM.md, "Fitting"). Each object one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "codec/rope.h"
#include "proto/status.h"
#include "proto/transform.h"

namespace kv {

/// Mean and covariance of the rows of one side, their rotation undone.
class RowStatistics {
 public:
  /// `turns` may be null; it outlives this.
  RowStatistics(uint32_t heads, uint32_t dim, const RotaryTurns* turns);
  /// rows (count, heads, dim) at positions first ….
  void add(std::span<const float> rows, uint32_t first);
  double variance() const;  ///< mean of all values' variances; there are rows

  /// Mean, and principal components of `width` values together (a whole number of heads), the
  /// largest first, with a step of 1: no tables yet. `metric`, if given, (groups, width, width):
  /// what an error costs; positive definite. Returns: invalid_argument without rows, or for a
  /// metric or a basis that can't be inverted.
  Result<Transform> transform(uint32_t width, std::span<const double> metric = {}) const;

 private:
  uint32_t heads_, dim_;
  const RotaryTurns* turns_;
  uint64_t count_ = 0;
  std::vector<double> sum_, products_;  // (values); (values, values), its lower half
};

/// Tables for the integers of many transforms: components of about the same spread share one.
class TableFit {
 public:
  /// integers (values, lane_rows(rows)) of `rows` rows that are typical for `t`: sets its low_bits
  /// and its tables' numbers, which hold once finish() has been called.
  void add(Transform& t, std::span<const int16_t> integers, uint32_t rows);
  /// The tables; numbers of those that nobody uses stay, with little behind them.
  std::vector<IntegerTable> finish() const;

 private:
  static constexpr size_t kSpreads = 64;
  std::array<std::array<double, 256>, kSpreads> counts_{};  // by value + 128
};

}  // namespace kv
