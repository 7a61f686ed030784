// Scalar kernels and the choice of a set. See kernels.h.
#include "engine/kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>

#include "codec/kernels.h"
#include "engine/packed.h"
#include "engine/panel_tiles.h"
#include "engine/rounded.h"

namespace kv {
namespace {

// 32 weights of a row; in a product, offsets are added as they are multiplied, with one rounding.
template <TensorType type, bool in_product = false>
void widen_group(const uint8_t* row, uint32_t g, float* out) {
  if constexpr (type == TensorType::f32) {
    std::memcpy(out, row + g * 128, 128);
  } else if constexpr (type == TensorType::f16) {
    for (uint32_t j = 0; j < 32; ++j) out[j] = half_at(row + (g * 32 + j) * 2);
  } else {
    const PackedGroup group = unpack_group<type>(row, g);
    for (uint32_t j = 0; j < 32; ++j) {
      const auto q = static_cast<float>(group.q[j]);
      const float scale = group.scale[j / 16];
      constexpr bool fused = in_product && has_offsets(type);
      out[j] = fused ? std::fma(q, scale, group.offset) : q * scale + group.offset;
    }
  }
}

template <TensorType type>
void widen(const uint8_t* w, uint32_t columns, float* out) {
  for (uint32_t g = 0; g < columns / 32; ++g) widen_group<type>(w, g, out + g * 32);
}

float lanes_sum(const float (&lanes)[16]) {
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = lanes[i] + lanes[i + 8];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

template <TensorType type>
void multiply(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
              const Activations& x, float* y, size_t y_stride) {
  for (uint32_t r = 0; r < rows; ++r, w += stride) {
    for (uint32_t b = 0; b < x.count; ++b) {
      const float* xb = x.x + b * x.stride;
      float lanes[16] = {}, values[32];
      for (uint32_t g = 0; g < columns / 32; ++g) {
        widen_group<type, true>(w, g, values);
        for (uint32_t j = 0; j < 32; ++j) {
          lanes[j % 16] = std::fma(values[j], xb[g * 32 + j], lanes[j % 16]);
        }
      }
      y[b * y_stride + r] = lanes_sum(lanes);
    }
  }
}

TypeKernels kernels_of(TensorType type) {
  return with_type(type, []<TensorType t>() {
    return TypeKernels{multiply<t>, scalar_panel_kernel(t), widen<t>, scalar_widen_panel(t)};
  });
}

float screen(const uint8_t* block, uint32_t groups, const ScreenInput& x, float* out) {
  float sums[kScreenRows] = {};
  for (uint32_t g = 0; g < groups; ++g, block += kScreenGroupBytes) {
    for (uint32_t r = 0; r < kScreenRows; ++r) {
      int32_t sum = 0;
      for (uint32_t j = 0; j < 32; ++j) {
        const uint8_t both = block[j % 16 / 4 * 64 + 4 * r + j % 4];
        sum += (j < 16 ? both & 15 : both >> 4) * x.codes[g * 32 + j];
      }
      const float scale = half_at(block + 256 + size_t{2} * r) * (0.5f * x.scale[g]);
      sums[r] += static_cast<float>(2 * sum - x.codes_15[g]) * scale;
    }
  }
  std::copy_n(sums, kScreenRows, out);
  return *std::max_element(out, out + kScreenRows);
}

}  // namespace

#if !defined(__x86_64__)
const EngineKernels* avx2_engine_kernels() { return nullptr; }
const EngineKernels* avx512_engine_kernels() { return nullptr; }
#endif

const EngineKernels& scalar_engine_kernels() {
  static constexpr EngineKernels kScalar = {"scalar",        kernels_of,          screen,
                                            round_row,       scalar_band_product, scalar_transpose,
                                            scalar_to_floats};
  return kScalar;
}

const EngineKernels& engine_kernels() {
  static const EngineKernels& chosen = []() -> const EngineKernels& {
    auto codec = select_kernels();
    bool scalar = !codec.ok() || std::string_view((*codec)->name) == "scalar";
    if (scalar || avx2_engine_kernels() == nullptr) return scalar_engine_kernels();
    return *codec == avx512_kernels() ? *avx512_engine_kernels() : *avx2_engine_kernels();
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
