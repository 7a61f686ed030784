// Packed weight groups: ggml's block layouts, taken apart 32 values at a time.
//
// A value of any quantised type is q * scale + offset with small integers q; a group of 32 has one
// offset and one scale per half. These are the scalar definitions that the kernels (kernels.h) and
// dequantisation (weights.h) share. Layouts: ggml's ggml-common.h and ggml-quants.c.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "engine/gguf.h"

namespace kv {

/// call.operator()<type>() for a type that is known only at run time.
template <typename Call>
auto with_type(TensorType type, const Call& call) {
  switch (type) {
    case TensorType::f32:
      break;
    case TensorType::f16:
      return call.template operator()<TensorType::f16>();
    case TensorType::q4_1:
      return call.template operator()<TensorType::q4_1>();
    case TensorType::q5_0:
      return call.template operator()<TensorType::q5_0>();
    case TensorType::q8_0:
      return call.template operator()<TensorType::q8_0>();
    case TensorType::q4_k:
      return call.template operator()<TensorType::q4_k>();
    case TensorType::q6_k:
      return call.template operator()<TensorType::q6_k>();
  }
  return call.template operator()<TensorType::f32>();
}

/// 32 values: q[j] * scale[j / 16] + offset.
struct PackedGroup {
  int8_t q[32];
  float scale[2];
  float offset;
};

/// The fp32 value of two little-endian fp16 bytes.
inline float half_at(const uint8_t* p) {
  uint32_t h = p[0] | (uint32_t{p[1]} << 8);
  uint32_t sign = (h & 0x8000u) << 16, magnitude = h & 0x7fffu;
  if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  // Shifted into place the exponent's bias is off by 112: a product with 2^112 is exact.
  float value = std::bit_cast<float>(magnitude << 13) * std::bit_cast<float>((112u + 127u) << 23);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(value) | sign);
}

/// Scale and minimum of sub-block `i` (0 … 7) of Q4_K: 6 bits each, in 12 bytes.
inline void q4_k_scales(const uint8_t* s, uint32_t i, uint32_t& scale, uint32_t& least) {
  if (i < 4) {
    scale = s[i] & 63u;
    least = s[i + 4] & 63u;
  } else {
    scale = (s[i + 4] & 15u) | ((s[i - 4] >> 6) << 4);
    least = (s[i + 4] >> 4) | ((s[i] >> 6) << 4);
  }
}

/// Group `g` of a row of a quantised type.
template <TensorType>
PackedGroup unpack_group(const uint8_t* row, uint32_t g);

// 20 bytes for 32: f16 scale, f16 offset, 16 bytes of nibbles (value j low, j + 16 high).
template <>
inline PackedGroup unpack_group<TensorType::q4_1>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g * 20;
  PackedGroup out{{}, {half_at(b), half_at(b)}, half_at(b + 2)};
  for (uint32_t j = 0; j < 16; ++j) {
    out.q[j] = static_cast<int8_t>(b[4 + j] & 15);
    out.q[j + 16] = static_cast<int8_t>(b[4 + j] >> 4);
  }
  return out;
}

// 22 bytes for 32: f16 scale, 32 fifth bits, 16 bytes of nibbles; less 16.
template <>
inline PackedGroup unpack_group<TensorType::q5_0>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g * 22;
  PackedGroup out{{}, {half_at(b), half_at(b)}, 0};
  uint32_t high;
  std::memcpy(&high, b + 2, 4);
  for (uint32_t j = 0; j < 16; ++j) {
    out.q[j] = static_cast<int8_t>(static_cast<int>((b[6 + j] & 15) | (high >> j & 1) << 4) - 16);
    out.q[j + 16] =
        static_cast<int8_t>(static_cast<int>((b[6 + j] >> 4) | (high >> (j + 16) & 1) << 4) - 16);
  }
  return out;
}

// 34 bytes for 32: f16 scale, 32 signed bytes.
template <>
inline PackedGroup unpack_group<TensorType::q8_0>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g * 34;
  PackedGroup out{{}, {half_at(b), half_at(b)}, 0};
  std::memcpy(out.q, b + 2, 32);
  return out;
}

// 144 bytes for 256: f16 scale of scales, f16 scale of minima, 12 bytes of both, 128 bytes of
// nibbles: each 32 bytes hold one group low and the next one high.
template <>
inline PackedGroup unpack_group<TensorType::q4_k>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g / 8 * 144;
  uint32_t i = g % 8, scale, least;
  q4_k_scales(b + 4, i, scale, least);
  float d = half_at(b) * static_cast<float>(scale);
  PackedGroup out{{}, {d, d}, -(half_at(b + 2) * static_cast<float>(least))};
  const uint8_t* q = b + 16 + i / 2 * 32;
  for (uint32_t j = 0; j < 32; ++j) {
    out.q[j] = static_cast<int8_t>(i % 2 == 0 ? q[j] & 15 : q[j] >> 4);
  }
  return out;
}

// 210 bytes for 256: 128 bytes of low nibbles, 64 bytes of high pairs, 16 signed scales (one per 16
// values), f16 scale of scales; less 32. Each half of 128 values: groups 0 and 1 in the low nibbles
// of 64 bytes, 2 and 3 in the high ones; their high pairs share 32 bytes.
template <>
inline PackedGroup unpack_group<TensorType::q6_k>(const uint8_t* row, uint32_t g) {
  const uint8_t* b = row + g / 8 * 210;
  uint32_t i = g % 4, half = g % 8 / 4;
  const uint8_t *low = b + half * 64 + i % 2 * 32, *high = b + 128 + half * 32;
  const auto* scales = reinterpret_cast<const int8_t*>(b + 192 + g % 8 * 2);
  float d = half_at(b + 208);
  PackedGroup out{{}, {d * static_cast<float>(scales[0]), d * static_cast<float>(scales[1])}, 0};
  for (uint32_t j = 0; j < 32; ++j) {
    int nibble = i < 2 ? low[j] & 15 : low[j] >> 4;
    out.q[j] = static_cast<int8_t>((nibble | (high[j] >> (2 * i) & 3) << 4) - 32);
  }
  return out;
}

}  // namespace kv
