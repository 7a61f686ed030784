// Matrix: a packed weight matrix of a GGUF file, and what the engine does with it.
//
// A Matrix is a view (the file must outlive it) and immutable: any thread. Weights are dequantised
// on the fly. The order of summation of one output depends only on its row
// of weights and its own activations: not on the number of rows, their order, or the thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/gguf.h"
#include "engine/kernels.h"
#include "proto/status.h"

namespace kv {

struct Matrix {
  TensorType type = TensorType::f32;
  uint32_t rows = 0;     ///< outputs
  uint32_t columns = 0;  ///< inputs; a multiple of 32
  const uint8_t* data = nullptr;
  uint64_t stride = 0;  ///< bytes of one row
};

/// The tensor as a matrix of these sizes. Returns: corruption naming tensor, expected and given.
Result<Matrix> as_matrix(const GgufFile& file, std::string_view name, uint32_t rows,
                         uint32_t columns);
/// A vector of `size` fp32 values in place. Returns: corruption; unsupported (not F32, by name).
Result<std::span<const float>> as_vector(const GgufFile& file, std::string_view name,
                                         uint32_t size);

/// One weight row as fp32: out (columns).
void dequantise_row(const Matrix& w, uint32_t row, float* out);

/// Rows of activations that products take: fp32, and as integers where the kernels want those,
/// made once for all products of the input. One thread at a time, but finish() of different rows.
class Inputs {
 public:
  /// Rows stay what they were if the number of columns does.
  void resize(uint32_t count, uint32_t columns);
  float* row(uint32_t i) { return x_.data() + size_t{i} * columns_; }  ///< (columns)
  /// To be called between a change of row i and the products that read it.
  void finish(uint32_t i);

  uint32_t count() const { return count_; }
  uint32_t columns() const { return columns_; }
  Activations floats() const { return {x_.data(), columns_, count_}; }
  IntegerActivations integers() const { return {q_.data(), scale_.data(), sum_.data(), count_}; }

 private:
  uint32_t count_ = 0, columns_ = 0;
  Floats x_;                // (count, columns)
  std::vector<int16_t> q_;  // (count, columns)
  Floats scale_, sum_;      // (count, columns / 32)
};

/// y[b * y_stride + row - first] = weight row . row b of x, for weight rows [first, end).
/// x.columns() is w.columns.
void multiply(const Matrix& w, const Inputs& x, uint32_t first, uint32_t end, float* y,
              size_t y_stride);

}  // namespace kv
