// Packed tensors as panels, and their dequantisation. See weights.h.
#include "engine/weights.h"

#include <algorithm>
#include <cstring>
#include <string>

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
  return Matrix{t->type, rows, columns, t->data.data(), nullptr};
}

Result<std::vector<float>> as_vector(const GgufFile& file, std::string_view name, uint32_t size) {
  KV_ASSIGN_OR_RETURN(const GgufTensor* t, find(file, name, 1, size));
  if (t->type != TensorType::f32) {
    return unsupported("tensor '" + std::string(name) + "': type " + to_string(t->type) +
                       ", expected F32");
  }
  std::vector<float> out(size);
  std::memcpy(out.data(), t->data.data(), t->data.size());
  return out;
}

void dequantise_row(const Matrix& w, uint32_t row, float* out) {
  const auto widen = engine_kernels().of(w.type).widen;
  const uint8_t* panel = w.panels + row / kPanelRows * panel_bytes(w.type, w.columns);
  float group[32 * kBandColumns];
  for (uint32_t g = 0; g < w.columns / 32; ++g) {
    widen(panel, g, g + 1, group);
    for (uint32_t j = 0; j < 32; ++j) *out++ = group[j * kBandColumns + row % kPanelRows];
  }
}

void widen_band(const Matrix& w, uint32_t first, BandLines lines, float* out) {
  const auto widen = engine_kernels().of(w.type).widen;
  const uint64_t bytes = panel_bytes(w.type, w.columns);
  for (uint32_t row = first; row < first + kBandColumns; row += kPanelRows) {
    float* half = out + (row - first);
    if (row < w.rows) {
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
    const uint64_t stride = row_bytes(w->type, w->columns);
    w->panels = at;
    for (uint32_t row = 0; row < w->rows; row += kPanelRows) {
      make_panel(w->type, w->data + row * stride, stride, std::min(kPanelRows, w->rows - row),
                 w->columns, at);
      at += panel_bytes(w->type, w->columns);
    }
    w->data = nullptr;
  }
  return out;
}

namespace {

void multiply_by(decltype(TypeKernels::multiply) kernel, const Matrix& w, const Activations& x,
                 uint32_t first, uint32_t end, float* y, size_t y_stride) {
  KV_CHECK(first % kPanelRows == 0);
  const uint64_t stride = panel_bytes(w.type, w.columns);
  const uint8_t* panels = w.panels + first / kPanelRows * stride;
  const uint32_t whole = (end - first) / kPanelRows, rest = (end - first) % kPanelRows;
  kernel(panels, stride, whole, w.columns, x, y, y_stride);
  if (rest == 0) return;
  std::vector<float> last(size_t{x.count} * kPanelRows);
  kernel(panels + whole * stride, stride, 1, w.columns, x, last.data(), kPanelRows);
  for (uint32_t b = 0; b < x.count; ++b) {
    std::copy_n(last.data() + size_t{b} * kPanelRows, rest, y + b * y_stride + whole * kPanelRows);
  }
}

}  // namespace

void multiply(const Matrix& w, const Activations& x, uint32_t first, uint32_t end, float* y,
              size_t y_stride) {
  multiply_by(engine_kernels().of(w.type).multiply, w, x, first, end, y, y_stride);
}

void multiply_in_chains(const Matrix& w, const Activations& x, uint32_t first, uint32_t end,
                        float* y, size_t y_stride) {
  multiply_by(engine_kernels().of(w.type).chain, w, x, first, end, y, y_stride);
}

}  // namespace kv
