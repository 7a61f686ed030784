// Batch kernels: products of packed weight rows with the activations of several sequences at once.
//
// One pass over the weights serves up to kBatchRows rows of activations. Per output the order of
// summation is that of the EngineKernels of the same set, so row b of a batch gets the bits that a
// product of its own would give, whatever stands beside it. Pure; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/weights.h"

namespace kv {

/// Rows of activations that one pass over the weights serves.
inline constexpr uint32_t kBatchRows = 8;

/// Activations of `rows` sequences, laid out for products: by group of 32 columns, then by row.
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
    const float* x = nullptr;     ///< (columns / 32, rows, 32)
    const float* sums = nullptr;  ///< (columns / 32, kBatchRows): sums of the 32, then zeros
  };
  const std::vector<Panel>& panels() const { return panels_; }
  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }

 private:
  uint32_t rows_ = 0, columns_ = 0;
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

/// y[b * y_stride + row - first] = weight row . row b of x, for weight rows [first, end): as matvec
/// of each row of x, bit for bit.
void matvec_batch(const Matrix& w, const BatchActivations& x, uint32_t first, uint32_t end,
                  float* y, size_t y_stride);

}  // namespace kv
