// Views of packed tensors and their dequantisation. See weights.h.
#include "engine/weights.h"

#include <algorithm>
#include <string>

#include "engine/rounded.h"

namespace kv {
namespace {

std::string shape_of(const GgufTensor& t) {
  std::string s;
  for (uint64_t d : t.dims) s += (s.empty() ? "" : " x ") + std::to_string(d);
  return s;
}

Result<const GgufTensor*> find(const GgufFile& file, std::string_view name, uint64_t rows,
                               uint64_t columns) {
  const GgufTensor* t = file.tensor(name);
  std::string at = "tensor '" + std::string(name) + "': ";
  if (t == nullptr) return corruption(at + "missing");
  uint64_t given_rows = 1;
  for (size_t i = 1; i < t->dims.size(); ++i) given_rows *= t->dims[i];
  if (t->dims[0] != columns || given_rows != rows) {
    return corruption(at + "expected " + std::to_string(columns) + " x " + std::to_string(rows) +
                      ", given " + shape_of(*t));
  }
  return t;
}

}  // namespace

Result<Matrix> as_matrix(const GgufFile& file, std::string_view name, uint32_t rows,
                         uint32_t columns) {
  KV_ASSIGN_OR_RETURN(const GgufTensor* t, find(file, name, rows, columns));
  if (columns % 32 != 0) {
    return unsupported("tensor '" + std::string(name) + "': rows of " + std::to_string(columns) +
                       " values, expected a multiple of 32");
  }
  return Matrix{t->type, rows, columns, t->data.data(), row_bytes(t->type, columns)};
}

Result<std::span<const float>> as_vector(const GgufFile& file, std::string_view name,
                                         uint32_t size) {
  KV_ASSIGN_OR_RETURN(const GgufTensor* t, find(file, name, 1, size));
  if (t->type != TensorType::f32) {
    return unsupported("tensor '" + std::string(name) + "': type " + to_string(t->type) +
                       ", expected F32");
  }
  if (reinterpret_cast<uintptr_t>(t->data.data()) % alignof(float) != 0) {
    return corruption("tensor '" + std::string(name) + "': not aligned");
  }
  return std::span<const float>(reinterpret_cast<const float*>(t->data.data()), size);
}

void dequantise_row(const Matrix& w, uint32_t row, float* out) {
  engine_kernels().of(w.type).widen(w.data + row * w.stride, w.columns, out);
}

void widen_band(const Matrix& w, uint32_t first, BandLines lines, std::vector<float>& work,
                float* out) {
  const uint32_t end = std::min(first + kBandColumns, w.rows);
  if (w.panels == nullptr) {
    work.resize(size_t{kBandColumns} * w.columns);
    for (uint32_t row = first; row < end; ++row) {
      dequantise_row(w, row, work.data() + size_t{row - first} * w.columns);
    }
    return engine_kernels().transpose(work.data() + lines.first, w.columns, end - first,
                                      lines.end - lines.first, out);
  }
  const auto widen = engine_kernels().of(w.type).widen_panel;
  const uint64_t bytes = panel_bytes(w.type, w.columns);
  for (uint32_t row = first; row < first + kBandColumns; row += kPanelRows) {
    float* half = out + (row - first);
    if (row < end) {
      widen(w.panels + row / kPanelRows * bytes, lines.first / 32, lines.end / 32, half);
      continue;
    }
    for (uint32_t k = lines.first; k < lines.end; ++k, half += kBandColumns) {
      std::fill_n(half, kPanelRows, 0.0f);
    }
  }
}

LargePages make_panels(std::span<Matrix* const> matrices) {
  auto panels_of = [](const Matrix& w) { return (w.rows - 1) / kPanelRows + 1; };
  uint64_t bytes = 0;
  for (const Matrix* w : matrices) bytes += panels_of(*w) * panel_bytes(w->type, w->columns);
  LargePages out = zeroed_large_pages(bytes);
  uint8_t* at = out.data();
  for (Matrix* w : matrices) {
    if (!has_panels(w->type)) continue;
    w->panels = at;
    for (uint32_t row = 0; row < w->rows; row += kPanelRows) {
      make_panel(w->type, w->data + row * w->stride, w->stride, std::min(kPanelRows, w->rows - row),
                 w->columns, at);
      at += panel_bytes(w->type, w->columns);
    }
  }
  return out;
}

namespace {

void multiply_panels(const Matrix& w, Activations x, uint32_t first, uint32_t end, float* y,
                     size_t y_stride) {
  const auto kernel = engine_kernels().of(w.type).multiply_panels;
  const uint64_t stride = panel_bytes(w.type, w.columns);
  RoundedRows rounded;
  if (x.codes == nullptr && panel_integers(w.type)) x = rounded.round(x, w.columns);
  while (first < end) {
    const uint32_t lane = first % kPanelRows, whole = lane == 0 ? (end - first) / kPanelRows : 0;
    const uint8_t* panels = w.panels + first / kPanelRows * stride;
    if (whole > 0) {
      kernel(panels, stride, whole, w.columns, x, y, y_stride);
      y += whole * kPanelRows;
      first += whole * kPanelRows;
      continue;
    }
    const uint32_t rows = std::min(kPanelRows - lane, end - first);
    std::vector<float> panel(size_t{x.count} * kPanelRows);
    kernel(panels, stride, 1, w.columns, x, panel.data(), kPanelRows);
    for (uint32_t b = 0; b < x.count; ++b) {
      std::copy_n(panel.data() + size_t{b} * kPanelRows + lane, rows, y + b * y_stride);
    }
    y += rows;
    first += rows;
  }
}

}  // namespace

void multiply(const Matrix& w, const Activations& x, uint32_t first, uint32_t end, float* y,
              size_t y_stride) {
  if (w.panels != nullptr) return multiply_panels(w, x, first, end, y, y_stride);
  engine_kernels().of(w.type).multiply(w.data + first * w.stride, w.stride, end - first, w.columns,
                                       x, y, y_stride);
}

}  // namespace kv
