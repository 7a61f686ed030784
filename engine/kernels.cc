// Scalar kernels and the choice of a set. See kernels.h.
#include "engine/kernels.h"

#include <cstring>
#include <string_view>

#include "codec/kernels.h"
#include "engine/packed.h"

namespace kv {
namespace {

float lanes_sum(const float* s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

template <TensorType type>
void rows_packed(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns, const float* x,
                 const float* sums, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    float acc[8] = {}, offset = 0;
    for (uint32_t g = 0; g < columns / 32; ++g) {
      PackedGroup group = unpack_group<type>(w, g);
      for (uint32_t half = 0; half < 2; ++half) {
        float part[8] = {};
        for (uint32_t j = half * 16; j < half * 16 + 16; ++j) {
          part[j % 8] += static_cast<float>(group.q[j]) * x[g * 32 + j];
        }
        for (int l = 0; l < 8; ++l) acc[l] += group.scale[half] * part[l];
      }
      offset += group.offset * sums[g];
    }
    y[r] = lanes_sum(acc) + offset;
  }
}

template <TensorType type>
void widen_packed(const uint8_t* w, uint32_t columns, float* out) {
  for (uint32_t g = 0; g < columns / 32; ++g, out += 32) {
    PackedGroup group = unpack_group<type>(w, g);
    for (uint32_t j = 0; j < 32; ++j) {
      out[j] = static_cast<float>(group.q[j]) * group.scale[j / 16] + group.offset;
    }
  }
}

void rows_f32(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns, const float* x,
              const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    float acc[8] = {};
    for (uint32_t j = 0; j < columns; ++j) {
      float value;
      std::memcpy(&value, w + j * 4, 4);
      acc[j % 8] += value * x[j];
    }
    y[r] = lanes_sum(acc);
  }
}

void rows_f16(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns, const float* x,
              const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    float acc[8] = {};
    for (uint32_t j = 0; j < columns; ++j) acc[j % 8] += half_at(w + j * 2) * x[j];
    y[r] = lanes_sum(acc);
  }
}

void sums_of_groups(const float* x, uint32_t columns, float* out) {
  for (uint32_t g = 0; g < columns / 32; ++g) {
    float acc[8] = {};
    for (uint32_t j = 0; j < 32; ++j) acc[j % 8] += x[g * 32 + j];
    out[g] = lanes_sum(acc);
  }
}

void widen_f32(const uint8_t* w, uint32_t columns, float* out) {
  std::memcpy(out, w, columns * sizeof(float));
}

void widen_f16(const uint8_t* w, uint32_t columns, float* out) {
  for (uint32_t j = 0; j < columns; ++j) out[j] = half_at(w + j * 2);
}

template <TensorType type>
constexpr TypeKernels kPacked = {rows_packed<type>, widen_packed<type>};

constexpr EngineKernels kScalar = {"scalar",
                                   {rows_f32, widen_f32},
                                   {rows_f16, widen_f16},
                                   kPacked<TensorType::q4_1>,
                                   kPacked<TensorType::q5_0>,
                                   kPacked<TensorType::q8_0>,
                                   kPacked<TensorType::q4_k>,
                                   kPacked<TensorType::q6_k>,
                                   sums_of_groups};

}  // namespace

const TypeKernels& EngineKernels::of(TensorType type) const {
  switch (type) {
    case TensorType::f32:
      return f32;
    case TensorType::f16:
      return f16;
    case TensorType::q4_1:
      return q4_1;
    case TensorType::q5_0:
      return q5_0;
    case TensorType::q8_0:
      return q8_0;
    case TensorType::q4_k:
      return q4_k;
    case TensorType::q6_k:
      return q6_k;
  }
  return f32;
}

const EngineKernels& scalar_engine_kernels() { return kScalar; }

const EngineKernels& engine_kernels() {
  static const EngineKernels& chosen = []() -> const EngineKernels& {
    auto codec = select_kernels();
    bool scalar = !codec.ok() || std::string_view((*codec)->name) == "scalar";
    const EngineKernels* fast = avx2_engine_kernels();
    return scalar || fast == nullptr ? kScalar : *fast;
  }();
  return chosen;
}

const Kernels& engine_codec_kernels() {
  static const Kernels& chosen = []() -> const Kernels& {
    auto codec = select_kernels();
    return codec.ok() ? **codec : scalar_kernels();
  }();
  return chosen;
}

}  // namespace kv
