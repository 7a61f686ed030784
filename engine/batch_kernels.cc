// Packing, the scalar batch kernels and the choice of a set. See batch_kernels.h.
#include "engine/batch_kernels.h"

#include <algorithm>
#include <cstring>

#include "engine/kernels.h"

namespace kv {
namespace {

// Row b of a panel as a row of its own, then the product of one row.
template <TensorType type>
void row_by_row(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                const BatchActivations::Panel& x, float* y, size_t y_stride) {
  std::vector<float> own(columns), sums(columns / 32);
  for (uint32_t b = 0; b < x.rows; ++b) {
    for (uint32_t g = 0; g < columns / 32; ++g) {
      std::copy_n(x.x + (size_t{g} * x.rows + b) * 32, 32, own.data() + g * 32);
      sums[g] = x.sums[g * kBatchRows + b];
    }
    scalar_engine_kernels().of(type).rows(w, stride, rows, columns, own.data(), sums.data(),
                                          y + b * y_stride);
  }
}

}  // namespace

void BatchActivations::start(uint32_t rows, uint32_t columns) {
  const size_t groups = columns / 32, panels = (rows + kBatchRows - 1) / kBatchRows;
  rows_ = rows;
  columns_ = columns;
  if (x_.size() < size_t{rows} * columns) x_.resize(size_t{rows} * columns);
  sums_.assign(panels * groups * kBatchRows, 0.0f);
  panels_.clear();
  for (uint32_t first = 0; first < rows; first += kBatchRows) {
    panels_.push_back({std::min(kBatchRows, rows - first), x_.data() + size_t{first} * columns,
                       sums_.data() + first * groups});
  }
}

void BatchActivations::put(uint32_t row, const float* x) {
  const Panel& panel = panels_[row / kBatchRows];
  const size_t b = row % kBatchRows;
  float* out = x_.data() + (panel.x - x_.data());
  float* sums = sums_.data() + (panel.sums - sums_.data());
  for (uint32_t g = 0; g < columns_ / 32; ++g, x += 32) {
    std::copy_n(x, 32, out + (size_t{g} * panel.rows + b) * 32);
    group_sums(x, 32, sums + g * kBatchRows + b);
  }
}

BatchRows scalar_batch_rows(TensorType type) {
  switch (type) {
    case TensorType::f32:
      return row_by_row<TensorType::f32>;
    case TensorType::f16:
      return row_by_row<TensorType::f16>;
    case TensorType::q4_1:
      return row_by_row<TensorType::q4_1>;
    case TensorType::q5_0:
      return row_by_row<TensorType::q5_0>;
    case TensorType::q8_0:
      return row_by_row<TensorType::q8_0>;
    case TensorType::q4_k:
      return row_by_row<TensorType::q4_k>;
    case TensorType::q6_k:
      return row_by_row<TensorType::q6_k>;
  }
  return nullptr;
}

void matvec_batch(const Matrix& w, const BatchActivations& x, uint32_t first, uint32_t end,
                  float* y, size_t y_stride) {
  const bool scalar = &engine_kernels() == &scalar_engine_kernels();
  BatchRows rows = scalar ? scalar_batch_rows(w.type) : avx2_batch_rows(w.type);
  for (const BatchActivations::Panel& panel : x.panels()) {
    rows(w.data + first * w.stride, w.stride, end - first, w.columns, panel, y, y_stride);
    y += kBatchRows * y_stride;
  }
}

}  // namespace kv
