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
      for (uint32_t k = 0; k < 4; ++k) {
        std::copy_n(x.x + panel_offset(x.rows, g, b, k), 8, own.data() + g * 32 + k * 8);
      }
      sums[g] = x.sums[g * kBatchRows + b];
    }
    scalar_engine_kernels().of(type).rows(w, stride, rows, columns, own.data(), sums.data(),
                                          y + b * y_stride);
  }
}

constexpr size_t kAlignment = 64 / sizeof(float);

// What goes with engine_kernels() and the codec's choice.
auto choose() -> BatchRows (*)(TensorType) {
  if (&engine_kernels() == &scalar_engine_kernels()) return scalar_batch_rows;
  return &engine_codec_kernels() == avx512_kernels() ? avx512_batch_rows : avx2_batch_rows;
}

}  // namespace

void BatchActivations::start(uint32_t rows, uint32_t columns) {
  const size_t groups = columns / 32, panels = (rows + kBatchRows - 1) / kBatchRows;
  rows_ = rows;
  columns_ = columns;
  const size_t floats = panels * kBatchRows * columns + kAlignment;
  if (x_.size() < floats) x_.resize(floats);
  sums_.assign(panels * groups * kBatchRows, 0.0f);
  panels_.clear();
  for (uint32_t first = 0; first < rows; first += kBatchRows) {
    const uint32_t count = std::min(kBatchRows, rows - first);
    float* x = start_of(panels_.size());
    panels_.push_back({count, x, sums_.data() + first * groups});
    for (size_t g = 0; count % 2 != 0 && g < groups; ++g) {
      for (uint32_t k = 0; k < 4; ++k) std::fill_n(x + panel_offset(count, g, count, k), 8, 0.0f);
    }
  }
}

float* BatchActivations::start_of(size_t panel) const {
  const auto at = reinterpret_cast<uintptr_t>(x_.data()) / sizeof(float) % kAlignment;
  return const_cast<float*>(x_.data()) + (kAlignment - at) % kAlignment +
         panel * kBatchRows * columns_;
}

void BatchActivations::put(uint32_t row, const float* x) {
  const size_t panel = row / kBatchRows, b = row % kBatchRows;
  const uint32_t count = panels_[panel].rows;
  float *out = start_of(panel), *sums = sums_.data() + panel * kBatchRows * columns_ / 32;
  for (size_t g = 0; g < columns_ / 32; ++g, x += 32) {
    for (uint32_t k = 0; k < 4; ++k) {
      std::copy_n(x + k * 8, 8, out + panel_offset(count, g, b, k));
    }
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
  static BatchRows (*const chosen)(TensorType) = choose();
  BatchRows rows = chosen(w.type);
  for (const BatchActivations::Panel& panel : x.panels()) {
    rows(w.data + first * w.stride, w.stride, end - first, w.columns, panel, y, y_stride);
    y += kBatchRows * y_stride;
  }
}

}  // namespace kv
