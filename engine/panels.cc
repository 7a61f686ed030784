// Panels from packed rows, and the scalar product. See panels.h.
#include "engine/panels.h"

#include <cstring>

#include "engine/packed.h"
#include "engine/panel_tiles.h"

namespace kv {
namespace {

void put_lane(uint8_t* line, uint32_t r, uint32_t word) {
  std::memcpy(line + size_t{4} * r, &word, 4);
}

// The codes of one group of row r; `least` makes them unsigned.
template <TensorType type>
void put_codes(const PackedGroup& packed, int least, uint32_t r, uint8_t* group) {
  if constexpr (type == TensorType::q8_0) {
    for (uint32_t j = 0; j < 32; ++j) {
      group[j * kPanelRows + r] = static_cast<uint8_t>(packed.q[j]);
    }
    return;
  }
  uint32_t low[4] = {}, high[2] = {};
  constexpr uint32_t bits = type == TensorType::q6_k ? 2 : 1;  // beyond the low four
  for (uint32_t j = 0; j < 32; ++j) {
    const auto code = static_cast<uint32_t>(packed.q[j] - least);
    low[j / 8] |= (code & 15) << (j % 8 * 4);
    high[j * bits / 32] |= (code >> 4) << (j * bits % 32);
  }
  for (uint32_t k = 0; k < 4; ++k) put_lane(group + k * 64, r, low[k]);
  uint8_t* after = group + panel_layout(type).high;
  if (type == TensorType::q5_0) put_lane(after, r, high[0]);
  if (type == TensorType::q6_k) put_lane(after, r, high[0]), put_lane(after + 64, r, high[1]);
}

template <TensorType type>
void put_row(const uint8_t* row, uint32_t r, uint32_t columns, uint8_t* out) {
  constexpr PanelLayout at = panel_layout(type);
  constexpr int least = type == TensorType::q5_0 ? -16 : type == TensorType::q6_k ? -32 : 0;
  for (uint32_t g = 0; g < columns / 32; ++g) {
    uint8_t* group = out + panel_group(type, g);
    uint8_t *scales = group + at.scales, *super = out + panel_super(type, g);
    put_codes<type>(unpack_group<type>(row, g), least, r, group);
    if constexpr (type == TensorType::q4_k) {
      const uint8_t* b = row + g / 8 * 144;
      uint32_t scale, minimum;
      q4_k_scales(b + 4, g % 8, scale, minimum);
      scales[r] = static_cast<uint8_t>(scale);
      scales[16 + r] = static_cast<uint8_t>(minimum);
      std::memcpy(super + size_t{2} * r, b, 2);
      std::memcpy(super + 32 + size_t{2} * r, b + 2, 2);
    } else if constexpr (type == TensorType::q6_k) {
      const uint8_t* b = row + g / 8 * 210;
      scales[r] = b[192 + g % 8 * 2];
      scales[16 + r] = b[193 + g % 8 * 2];
      std::memcpy(super + size_t{2} * r, b + 208, 2);
    } else {
      const uint8_t* b = row + g * (row_bytes(type, 32));
      std::memcpy(scales + size_t{2} * r, b, 2);
      if (type == TensorType::q4_1) std::memcpy(scales + 32 + size_t{2} * r, b + 2, 2);
    }
  }
}

}  // namespace

void make_panel(TensorType type, const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                uint8_t* out) {
  with_type(type, [&]<TensorType t>() {
    if constexpr (has_panels(t)) {
      for (uint32_t r = 0; r < rows; ++r) put_row<t>(w + r * stride, r, columns, out);
    }
  });
}

Activations with_group_sums(Activations x, uint32_t columns, Floats& sums) {
  sums.resize(size_t{x.count} * (columns / 32));
  float* out = sums.data();
  for (uint32_t b = 0; b < x.count; ++b) {
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const float* v = x.x + b * x.stride + size_t{g} * 32;
      float lanes[16];
      for (uint32_t i = 0; i < 16; ++i) lanes[i] = v[i] + v[i + 16];
      for (uint32_t half = 8; half > 0; half /= 2) {
        for (uint32_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
      }
      *out++ = lanes[0];
    }
  }
  x.sums = sums.data();
  return x;
}

namespace {

// A column of the row in lane r, as a small integer.
template <TensorType type>
float panel_weight(const uint8_t* group, uint32_t j, uint32_t r) {
  auto lane = [r](const uint8_t* line) {
    uint32_t word;
    std::memcpy(&word, line + size_t{4} * r, 4);
    return word;
  };
  const uint8_t* high = group + panel_layout(type).high;
  if constexpr (type == TensorType::q8_0) {
    return static_cast<float>(static_cast<int8_t>(group[j * kPanelRows + r]));
  }
  auto code = static_cast<int>(lane(group + j / 8 * 64) >> (j % 8 * 4) & 15);
  if (type == TensorType::q5_0) code += static_cast<int>((lane(high) >> j & 1) << 4) - 16;
  if (type == TensorType::q6_k) {
    code += static_cast<int>((lane(high + j / 16 * 64) >> (j % 16 * 2) & 3) << 4) - 32;
  }
  return static_cast<float>(code);
}

}  // namespace

struct ScalarPanels {
  static constexpr uint32_t kMostRows = 1, kPanels = 1;

  template <TensorType type, uint32_t panels, uint32_t count>
  static void tile(const uint8_t* panel, uint64_t, uint32_t columns, const float* x, size_t,
                   const float* sums, float* y, size_t) {
    constexpr PanelLayout at = panel_layout(type);
    for (uint32_t r = 0; r < kPanelRows; ++r) {
      y[r] = 0;
      for (uint32_t g = 0; g < columns / 32; ++g) {
        const uint8_t* group = panel + panel_group(type, g);
        const uint8_t *scales = group + at.scales, *super = panel + panel_super(type, g);
        float s[2] = {}, scale[2], offset = 0;
        if constexpr (type == TensorType::q4_k) {
          scale[0] = scale[1] = half_at(super + size_t{2} * r) * static_cast<float>(scales[r]);
          offset = -(half_at(super + 32 + size_t{2} * r) * static_cast<float>(scales[16 + r]));
        } else if constexpr (type == TensorType::q6_k) {
          for (uint32_t h = 0; h < 2; ++h) {
            scale[h] = half_at(super + size_t{2} * r) *
                       static_cast<float>(static_cast<int8_t>(scales[16 * h + r]));
          }
        } else {
          scale[0] = scale[1] = half_at(scales + size_t{2} * r);
          if (type == TensorType::q4_1) offset = half_at(scales + 32 + size_t{2} * r);
        }
        for (uint32_t j = 0; j < 32; ++j) {
          s[j % 2] += panel_weight<type>(group, j, r) * x[g * 32 + j];
          if (j != 31 && !(j == 15 && panel_halves<type>)) continue;
          y[r] += (s[0] + s[1]) * scale[j / 16];
          s[0] = s[1] = 0;
        }
        if (panel_offsets(type)) y[r] += offset * sums[g];
      }
    }
  }
};

PanelKernel scalar_panel_kernel(TensorType type) { return panel_kernel<ScalarPanels>(type); }

}  // namespace kv
