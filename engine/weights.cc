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

void Inputs::resize(uint32_t count, uint32_t columns) {
  count_ = count;
  columns_ = columns;
  const size_t values = size_t{count} * columns;
  x_.resize(values);
  if (engine_kernels().to_integers == nullptr) return;
  q_.resize(values);
  for (Floats* v : {&scale_, &sum_}) v->resize(values / 32);
}

void Inputs::finish(uint32_t i) {
  if (engine_kernels().to_integers == nullptr) return;
  const size_t at = size_t{i} * columns_;
  engine_kernels().to_integers(x_.data() + at, columns_, q_.data() + at, scale_.data() + at / 32,
                               sum_.data() + at / 32);
}

void multiply(const Matrix& w, const Inputs& x, uint32_t first, uint32_t end, float* y,
              size_t y_stride) {
  KV_CHECK(x.columns() == w.columns);
  const TypeKernels kernels = engine_kernels().of(w.type);
  const uint8_t* rows = w.data + first * w.stride;
  if (kernels.multiply_integers != nullptr) {
    kernels.multiply_integers(rows, w.stride, end - first, w.columns, x.integers(), y, y_stride);
  } else {
    kernels.multiply(rows, w.stride, end - first, w.columns, x.floats(), y, y_stride);
  }
}

}  // namespace kv
