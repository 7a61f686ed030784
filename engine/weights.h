// Matrix: a packed weight matrix of a GGUF file, and what the engine does with it.
//
// A Matrix is a view (the file, and the panels it may have, must outlive it) and immutable once
// loaded: any thread. Activations are float, for panel_integers() rounded (rounded.h); weights
// are dequantised on the fly. The order of summation of one output depends only on its row of
// weights and its own activations: not on the number of rows, their order, or the thread.
#pragma once

#include <cstdint>
#include <span>

#include "engine/gguf.h"
#include "engine/kernels.h"
#include "engine/large_pages.h"
#include "engine/panels.h"
#include "proto/status.h"

namespace kv {

struct Matrix {
  TensorType type = TensorType::f32;
  uint32_t rows = 0;     ///< outputs
  uint32_t columns = 0;  ///< inputs; a multiple of 32
  const uint8_t* data = nullptr;
  uint64_t stride = 0;              ///< bytes of one row
  const uint8_t* panels = nullptr;  ///< the same weights for multiply() (panels.h), or null
};

/// The tensor as a matrix of these sizes. Returns: corruption naming tensor, expected and given.
Result<Matrix> as_matrix(const GgufFile& file, std::string_view name, uint32_t rows,
                         uint32_t columns);
/// A vector of `size` fp32 values in place. Returns: corruption; unsupported (not F32, by name).
Result<std::span<const float>> as_vector(const GgufFile& file, std::string_view name,
                                         uint32_t size);

/// Copies `matrices` into panels, those whose type has some, and has them use the copies: products
/// of one row of activations then run at the speed of memory. Returns the copies' memory.
LargePages make_panels(std::span<Matrix* const> matrices);

/// One weight row as fp32: out (columns).
void dequantise_row(const Matrix& w, uint32_t row, float* out);

/// Columns of weight rows, in groups of 32.
struct BandLines {
  uint32_t first, end;
};
/// Such lines of weight rows first … first + kBandColumns - 1 as a band (bands.h): out (end - first
/// lines, kBandColumns); zeros for rows that `w` lacks. `first` is a multiple of kBandColumns;
/// `work` is scratch. Of a matrix without panels whole rows are widened for it.
void widen_band(const Matrix& w, uint32_t first, BandLines lines, std::vector<float>& work,
                float* out);

/// y[b * y_stride + row - first] = weight row . row b of x, for weight rows [first, end); of
/// panels fastest where both are multiples of kPanelRows.
void multiply(const Matrix& w, const Activations& x, uint32_t first, uint32_t end, float* y,
              size_t y_stride);

}  // namespace kv
