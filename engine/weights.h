// Matrix: a packed weight matrix, and what the engine does with it.
//
// A Matrix is a view (what it points into must outlive it): of a GGUF file's rows, or of the panels
// (panels.h) that make_panels() made of them, which all but make_panels() itself want. Immutable
// once loaded: any thread. Activations are float, for panel_integers() rounded (rounded.h); weights
// are dequantised on the fly. The order of summation of one output depends only on its row of
// weights and its own activations: not on the number of rows, their order, or the thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/gguf.h"
#include "engine/kernels.h"
#include "engine/large_pages.h"
#include "engine/panels.h"
#include "proto/status.h"

namespace kv {

struct Matrix {
  TensorType type = TensorType::f32;
  uint32_t rows = 0;                ///< outputs
  uint32_t columns = 0;             ///< inputs; a multiple of 32
  const uint8_t* data = nullptr;    ///< rows as in the file, until there are panels
  const uint8_t* panels = nullptr;  ///< of 16 rows each
};

/// The tensor as a matrix of these sizes. Returns: corruption naming tensor, expected and given.
Result<Matrix> as_matrix(const GgufFile& file, std::string_view name, uint32_t rows,
                         uint32_t columns);
/// A copy of a vector of `size` fp32 values. Returns: corruption; unsupported (not F32, by name).
Result<std::vector<float>> as_vector(const GgufFile& file, std::string_view name, uint32_t size);

/// Copies `matrices` into panels and has them use the copies: products of one row of activations
/// then run at the speed of memory. Returns the copies' memory.
LargePages make_panels(std::span<Matrix* const> matrices);

/// One weight row as fp32: out (columns).
void dequantise_row(const Matrix& w, uint32_t row, float* out);

/// Columns of weight rows, in groups of 32.
struct BandLines {
  uint32_t first, end;
};
/// Such lines of weight rows first … first + kBandColumns - 1 as a band (bands.h): out (end - first
/// lines, kBandColumns); zeros for rows that `w` lacks. `first` is a multiple of kBandColumns.
void widen_band(const Matrix& w, uint32_t first, BandLines lines, float* out);

/// y[b * y_stride + row - first] = weight row . row b of x, for weight rows [first, end); `first`
/// is a multiple of kPanelRows. Of panel_integers() x has rounded activations.
void multiply(const Matrix& w, const Activations& x, uint32_t first, uint32_t end, float* y,
              size_t y_stride);
/// The same as products with bands: what widen_band() and EngineKernels::band_product give.
void multiply_in_chains(const Matrix& w, const Activations& x, uint32_t first, uint32_t end,
                        float* y, size_t y_stride);

}  // namespace kv
