// Batch kernels: products of packed weight rows with the activations of several sequences at once.
//
// One pass over the weights serves up to kBatchRows rows of activations. Per output the order of
// summation is that of the EngineKernels of the same set, so row b of a batch gets the bits that a
// product of its own would give, whatever stands beside it. Pure; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/weights.h"

namespace kv {

/// Where row `row`'s columns 8 k … of a group begin in Panel::x, of so many rows.
constexpr size_t panel_offset(uint32_t rows, size_t group, size_t row, size_t k) {
  return ((group * ((rows + 1) / 2) + row / 2) * 4 + k) * 16 + row % 2 * 8;
}

/// Rows of activations that one pass over the weights serves.
inline constexpr uint32_t kBatchRows = 8;

/// Activations of `rows` sequences, laid out for products: by group of 32 columns, then two by two.
/// Rows beyond kBatchRows begin a second panel of the same form. Grows only.
class BatchActivations {
 public:
  /// Room for `rows` rows of `columns` values, a multiple of 32, in place of those before.
  void start(uint32_t rows, uint32_t columns);
  /// Row `row` is x (columns). Rows may be put on different threads.
  void put(uint32_t row, const float* x);

  /// Up to kBatchRows rows.
  struct Panel {
    uint32_t rows = 0;
    /// (columns / 32, pairs, 4, 2, 8): row 2 p + i of pair p has its columns 8 k … at [p][k][i]. An
    /// odd last row stands beside zeros. 64-byte aligned.
    const float* x = nullptr;
    const float* sums = nullptr;  ///< (columns / 32, kBatchRows): sums of the 32, then zeros
  };
  std::span<const Panel> panels() const { return panels_; }
  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }

 private:
  uint32_t rows_ = 0, columns_ = 0;
  float* start_of(size_t panel) const;

  std::vector<float> x_, sums_;
  std::vector<Panel> panels_;
};

/// `rows` weight rows, `stride` bytes apart, with one panel: y[b * y_stride + r].
using BatchRows = void (*)(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                           const BatchActivations::Panel& x, float* y, size_t y_stride);
/// The function that gives the bits of scalar_engine_kernels().of(type).rows per row of a panel.
BatchRows scalar_batch_rows(TensorType type);
/// … of avx2_engine_kernels(), which this machine has.
BatchRows avx2_batch_rows(TensorType type);
/// … with two rows of the panel in a register of AVX-512, if this machine has avx512_kernels().
BatchRows avx512_batch_rows(TensorType type);

/// y[b * y_stride + row - first] = weight row . row b of x, for weight rows [first, end): as matvec
/// of each row of x, bit for bit.
void matvec_batch(const Matrix& w, const BatchActivations& x, uint32_t first, uint32_t end,
                  float* y, size_t y_stride);

}  // namespace kv
