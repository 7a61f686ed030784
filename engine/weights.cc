// Views of packed tensors and their dequantisation. See weights.h.
#include "engine/weights.h"

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

void multiply(const Matrix& w, const Activations& x, uint32_t first, uint32_t end, float* y,
              size_t y_stride) {
  engine_kernels().of(w.type).multiply(w.data + first * w.stride, w.stride, end - first, w.columns,
                                       x, y, y_stride);
}

}  // namespace kv
