// Scalar kernels and the choice of a set. See kernels.h; Q4_1 and Q8_0: ggml's block layouts.
#include "engine/kernels.h"

#include <cstring>
#include <string_view>

#include "codec/kernels.h"

namespace kv {
namespace {

float half(const uint8_t* p) {
  float value;
  scalar_kernels().f16_to_f32(p, &value, 1);
  return value;
}

float lanes_sum(const float* s) {
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

// 20 bytes for 32 values: f16 scale, f16 offset, 16 bytes of nibbles (value j low, j + 16 high).
void rows_q4_1(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns, const float* x,
               const float* sums, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    float acc[8] = {}, offset = 0;
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const uint8_t* block = w + g * 20;
      float part[8] = {}, scale = half(block);
      for (uint32_t j = 0; j < 32; ++j) {
        uint8_t q = j < 16 ? block[4 + j] & 15 : block[4 + j - 16] >> 4;
        part[j % 8] += static_cast<float>(q) * x[g * 32 + j];
      }
      for (int l = 0; l < 8; ++l) acc[l] += scale * part[l];
      offset += half(block + 2) * sums[g];
    }
    y[r] = lanes_sum(acc) + offset;
  }
}

// 34 bytes for 32 values: f16 scale, 32 signed bytes.
void rows_q8_0(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns, const float* x,
               const float*, float* y) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    float acc[8] = {};
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const uint8_t* block = w + g * 34;
      float part[8] = {}, scale = half(block);
      for (uint32_t j = 0; j < 32; ++j) {
        part[j % 8] += static_cast<float>(static_cast<int8_t>(block[2 + j])) * x[g * 32 + j];
      }
      for (int l = 0; l < 8; ++l) acc[l] += scale * part[l];
    }
    y[r] = lanes_sum(acc);
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
    for (uint32_t j = 0; j < columns; ++j) acc[j % 8] += half(w + j * 2) * x[j];
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

constexpr EngineKernels kScalar = {"scalar", rows_q4_1, rows_q8_0,
                                   rows_f32, rows_f16,  sums_of_groups};

}  // namespace

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
