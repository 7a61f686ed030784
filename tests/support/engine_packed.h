// Rows of packed weights: by chance, and taken apart one value at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/packed.h"

namespace kv {

inline constexpr TensorType kTypes[] = {TensorType::f32,  TensorType::f16,  TensorType::q4_1,
                                        TensorType::q5_0, TensorType::q8_0, TensorType::q4_k,
                                        TensorType::q6_k};

/// A row as fp32, (columns).
inline std::vector<float> dequantised(TensorType type, const uint8_t* row, uint32_t columns) {
  std::vector<float> out(columns);
  with_type(type, [&]<TensorType t>() {
    for (uint32_t j = 0; j < columns; ++j) {
      if constexpr (t == TensorType::f32) {
        std::memcpy(&out[j], row + j * 4, 4);
      } else if constexpr (t == TensorType::f16) {
        out[j] = half_at(row + j * 2);
      } else {
        const PackedGroup group = unpack_group<t>(row, j / 32);
        out[j] = static_cast<float>(group.q[j % 32]) * group.scale[j % 32 / 16] + group.offset;
      }
    }
  });
  return out;
}

/// Random bytes are valid weights of every type but for exponents of all ones.
inline std::vector<uint8_t> random_weights(TensorType type, uint32_t rows, uint32_t columns,
                                           uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values;
  const uint64_t stride = row_bytes(type, columns);
  std::vector<uint8_t> w(stride * rows);
  auto finite = [](float v) { return std::isfinite(v); };
  for (uint8_t* row = w.data(); row != w.data() + w.size(); row += stride) {
    do {
      for (size_t i = 0; i < stride; ++i) row[i] = static_cast<uint8_t>(random());
      for (uint32_t j = 0; type == TensorType::f32 && j < columns; ++j) {
        const float value = values(random);
        std::memcpy(row + j * 4, &value, 4);
      }
      for (uint32_t j = 0; type == TensorType::f16 && j < columns; ++j) row[2 * j + 1] &= 0xbf;
    } while (!std::ranges::all_of(dequantised(type, row, columns), finite));
  }
  return w;
}

}  // namespace kv
