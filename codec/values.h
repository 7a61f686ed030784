// Values of a dtype ↔ floats, by a kernel set. Any thread.
#pragma once

#include <cstring>

#include "codec/kernels.h"
#include "proto/model.h"

namespace kv {

/// `n` values of `dtype` at `from` as floats.
inline void read_values(const Kernels& kernels, const uint8_t* from, DType dtype, float* to,
                        size_t n) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, from, n * sizeof(float));
      return;
    case DType::f16:
      kernels.f16_to_f32(from, to, n);
      return;
    case DType::bf16:
      kernels.bf16_to_f32(from, to, n);
      return;
  }
}

/// `n` floats as values of `dtype`; of f16, clamped to its finite range.
inline void write_values(const Kernels& kernels, const float* from, size_t n, DType dtype,
                         uint8_t* to) {
  switch (dtype) {
    case DType::f32:
      std::memcpy(to, from, n * sizeof(float));
      return;
    case DType::f16:
      kernels.f32_to_f16(from, to, n);
      return;
    case DType::bf16:
      kernels.f32_to_bf16(from, to, n);
      return;
  }
}

}  // namespace kv
