// fp16 and bf16 ↔ fp32 for single values, the same bits as F16C. Pure functions, any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace kv {

inline constexpr float kHalfMax = 65504.0f;          ///< largest finite fp16
inline constexpr float kHalfOverflow = 65520.0f;     ///< the smallest that rounds to infinity
inline constexpr float kBf16Overflow = 0x1.ffp127f;  ///< the smallest that rounds to infinity

inline float half_to_float(uint16_t h) {
  uint32_t sign = uint32_t{h & 0x8000u} << 16, magnitude = h & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity, or NaN (made quiet)
    uint32_t quiet = magnitude > 0x7C00u ? 0x400000u : 0;
    return std::bit_cast<float>(sign | 0x7F800000u | quiet | ((magnitude & 0x3FFu) << 13));
  }
  if (magnitude >= 0x0400u) {
    return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  }
  float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(subnormal));
}

/// Rounds to nearest even; beyond the range gives infinity.
inline uint16_t float_to_half(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) {
    return static_cast<uint16_t>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude >= std::bit_cast<uint32_t>(kHalfOverflow)) return sign | 0x7C00u;
  if (magnitude < (113u << 23)) {  // subnormal or zero: let the adder round at 2^-24
    float rounded = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(rounded) - 0x3F000000u));
  }
  uint32_t odd = (magnitude >> 13) & 1;
  return static_cast<uint16_t>(sign | ((magnitude - (112u << 23) + 0xFFFu + odd) >> 13));
}

inline float bf16_to_float(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

/// Rounds to nearest even.
inline uint16_t float_to_bf16(float f) {
  uint32_t bits = std::bit_cast<uint32_t>(f);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1)) >> 16);
}

}  // namespace kv
