// Matrix: a packed weight matrix of a GGUF file, and what the engine does with it.
//
// A Matrix is a view (the file must outlive it) and immutable: any thread. Activations are float;
// weights are dequantised on the fly. The order of summation of one output depends only on its row
// of weights and its own activations: not on the number of rows, their order, or the thread.
#pragma once

#include <cstdint>
#include <span>

#include "engine/gguf.h"
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

/// Activations ready for products: the values and the sum of each 32 of them (Q4_1's offsets).
/// x (columns), group_sums (columns / 32); both outlive the struct's use.
struct Activations {
  const float* x = nullptr;
  const float* group_sums = nullptr;
};
/// out (columns / 32): sums of each 32 values, in a fixed order.
void group_sums(const float* x, uint32_t columns, float* out);

/// y[row - first] = weight row . x for rows [first, end).
void matvec(const Matrix& w, const Activations& x, uint32_t first, uint32_t end, float* y);

}  // namespace kv
