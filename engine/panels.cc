// Panels from packed rows, and the scalar product. See panels.h.
#include "engine/panels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/packed.h"
#include "engine/panel_tiles.h"

namespace kv {
namespace {

void put_lane(uint8_t* line, uint32_t r, uint32_t word) {
  std::memcpy(line + size_t{4} * r, &word, 4);
}

// One group of row r of a type whose weights are values.
template <TensorType type>
void put_values(const uint8_t* values, uint32_t r, uint8_t* group) {
  const size_t size = row_bytes(type, 1);
  for (uint32_t j = 0; j < 32; ++j) {
    std::memcpy(group + (j * kPanelRows + r) * size, values + j * size, size);
  }
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
  for (uint32_t j = 0; j < 32; ++j) {
    const auto code = static_cast<uint32_t>(packed.q[j] - least);
    low[j / 8] |= (code & 15) << (j % 8 * 4);
    const uint32_t place = type == TensorType::q5_0 ? panel_fifth_bit(j) : j * 2;
    high[place / 32] |= (code >> 4) << (place % 32);
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
    if constexpr (panel_values(type)) {
      put_values<type>(row + row_bytes(type, g * 32), r, group);
      continue;
    } else {
      put_codes<type>(unpack_group<type>(row, g), least, r, group);
    }
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
    } else if constexpr (!panel_values(type)) {
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
    for (uint32_t r = 0; r < rows; ++r) put_row<t>(w + r * stride, r, columns, out);
  });
}

namespace {

// A column of the row in lane r as a small integer: unsigned codes of panel_integers().
template <TensorType type>
int panel_code(const uint8_t* group, uint32_t j, uint32_t r) {
  auto lane = [r](const uint8_t* line) {
    uint32_t word;
    std::memcpy(&word, line + size_t{4} * r, 4);
    return word;
  };
  const uint8_t* high = group + panel_layout(type).high;
  if constexpr (type == TensorType::q8_0) {
    return static_cast<int8_t>(group[j * kPanelRows + r]);
  }
  auto code = static_cast<int>(lane(group + j / 8 * 64) >> (j % 8 * 4) & 15);
  if (type == TensorType::q5_0) {
    code |= static_cast<int>((lane(high) >> panel_fifth_bit(j) & 1) << 4);
  }
  if (type == TensorType::q6_k) {
    code += static_cast<int>((lane(high + j / 16 * 64) >> (j % 16 * 2) & 3) << 4) - 32;
  }
  return code;
}

// A column of the row in lane r: a value, or a small integer; unsigned codes of panel_integers().
template <TensorType type>
auto panel_weight(const uint8_t* group, uint32_t j, uint32_t r) {
  if constexpr (type == TensorType::f32) {
    float value;
    std::memcpy(&value, group + (j * kPanelRows + r) * 4, 4);
    return value;
  } else if constexpr (type == TensorType::f16) {
    return half_at(group + (j * kPanelRows + r) * 2);
  } else {
    return panel_code<type>(group, j, r);
  }
}
}  // namespace

struct ScalarPanels {
  static constexpr uint32_t kMostRows = 1, kMostChained = 1, kPanels = 1;

  template <TensorType type, uint32_t panels, uint32_t count>
  static void tile(const uint8_t* panel, uint64_t, uint32_t columns, const Activations& x, float* y,
                   size_t) {
    for (uint32_t r = 0; r < kPanelRows; ++r) {
      y[r] = 0;
      for (uint32_t g = 0; g < columns / 32; ++g) {
        if constexpr (panel_integers(type)) {
          add_integers<type>(panel, r, g, x, y[r]);
        } else {
          add_floats<type>(panel, r, g, x, y[r]);
        }
      }
    }
  }

  template <TensorType type, uint32_t panels, uint32_t count>
  static void chain(const uint8_t* panel, uint64_t, uint32_t columns, const Activations& x,
                    float* y, size_t) {
    float w[32 * kBandColumns];
    std::fill_n(y, kPanelRows, 0.0f);
    for (uint32_t g = 0; g < columns / 32; ++g) {
      widen<type>(panel, g, g + 1, w);
      for (uint32_t j = 0; j < 32; ++j) {
        for (uint32_t r = 0; r < kPanelRows; ++r) {
          y[r] = std::fma(x.x[g * 32 + j], w[j * kBandColumns + r], y[r]);
        }
      }
    }
  }

  template <TensorType type>
  static void widen(const uint8_t* panel, uint32_t first, uint32_t end, float* out) {
    constexpr int least = type == TensorType::q5_0 ? 16 : 0;
    for (uint32_t j = first * 32; j < end * 32; ++j, out += kBandColumns) {
      const uint32_t g = j / 32;
      for (uint32_t r = 0; r < kPanelRows; ++r) {
        const auto code = panel_weight<type>(panel + panel_group(type, g), j % 32, r) - least;
        out[r] = static_cast<float>(code) * scale_of<type>(panel, g, j % 32, r);
        if constexpr (has_offsets(type)) out[r] += offset_of<type>(panel, g, r);
      }
    }
  }

 private:
  // The scale of a column of the row in lane r, and what is added to its group's products.
  template <TensorType type>
  static float scale_of(const uint8_t* panel, uint32_t g, uint32_t j, uint32_t r) {
    const uint8_t *scales = panel + panel_group(type, g) + panel_layout(type).scales,
                  *super = panel + panel_super(type, g);
    if constexpr (panel_values(type)) {
      return 1;
    } else if constexpr (type == TensorType::q4_k) {
      return half_at(super + size_t{2} * r) * static_cast<float>(scales[r]);
    } else if constexpr (type == TensorType::q6_k) {
      return half_at(super + size_t{2} * r) *
             static_cast<float>(static_cast<int8_t>(scales[j / 16 * 16 + r]));
    } else {
      return half_at(scales + size_t{2} * r);
    }
  }
  template <TensorType type>
  static float offset_of(const uint8_t* panel, uint32_t g, uint32_t r) {
    const uint8_t *scales = panel + panel_group(type, g) + panel_layout(type).scales,
                  *super = panel + panel_super(type, g);
    if constexpr (type == TensorType::q4_1) return half_at(scales + 32 + size_t{2} * r);
    if constexpr (type == TensorType::q5_0) return -16 * half_at(scales + size_t{2} * r);
    return -(half_at(super + 32 + size_t{2} * r) * static_cast<float>(scales[16 + r]));
  }

  template <TensorType type>
  static void add_integers(const uint8_t* panel, uint32_t r, uint32_t g, const Activations& x,
                           float& y) {
    const uint8_t* group = panel + panel_group(type, g);
    const float scale = scale_of<type>(panel, g, 0, r), offset = offset_of<type>(panel, g, r);
    int32_t sums[3] = {};  // of the codes' bytes
    for (uint32_t j = 0; j < 32; ++j) {
      const int8_t* code = x.codes + rounded_bytes(g * 32 + j / 8 * 8) + j % 2 * 16 + j % 8 / 2;
      for (uint32_t d = 0; d < 3; ++d) sums[d] += panel_weight<type>(group, j, r) * code[4 * d];
    }
    const float sum = std::fma(static_cast<float>(sums[0]), 65536.0f,
                               static_cast<float>(sums[1] * 256 + sums[2]));
    y = std::fma(sum, scale * x.scales[g], y);
    y = std::fma(offset, x.sums[g], y);
  }

  template <TensorType type>
  static void add_floats(const uint8_t* panel, uint32_t r, uint32_t g, const Activations& x,
                         float& y) {
    const uint8_t* group = panel + panel_group(type, g);
    float s[2] = {};
    for (uint32_t j = 0; j < 32; ++j) {
      const auto w = static_cast<float>(panel_weight<type>(group, j, r));
      s[j % 2] = std::fma(w, x.x[g * 32 + j], s[j % 2]);
      if (j != 31 && !(j == 15 && panel_halves<type>)) continue;
      y = std::fma(s[0] + s[1], scale_of<type>(panel, g, j, r), y);
      s[0] = s[1] = 0;
    }
  }
};

TypeKernels scalar_panels(TensorType type) { return panel_kernels<ScalarPanels>(type); }

}  // namespace kv
