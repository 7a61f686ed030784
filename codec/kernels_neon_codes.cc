// The NEON kernels on packed codes: values, products with queries, weighted sums over a tile.
//
// 16 bytes of a row's plane (code_order.h) are a chunk; each slice of it gives 16 neighbouring
// values, two table look-ups and two zips away. Sums are exact integers: the same bits as the
// scalar kernels. Built for AArch64 only. Pure functions, any thread.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "codec/code_order.h"
#include "codec/kernels.h"
#include "codec/kernels_neon.h"
#include "codec/turboquant.h"
#include "proto/plane.h"

namespace kv::neon {
namespace {

constexpr uint32_t kChunk = 16;

struct Values16 {
  int16x8_t first, second;
};

// Low and high bytes of the code values.
template <uint8_t bits>
constexpr auto kValueBytes = [] {
  std::array<std::array<uint8_t, 16>, 2> bytes{};
  for (uint32_t i = 0; bits != 8 && i < 1u << bits; ++i) {
    const auto value = static_cast<uint16_t>(code_value(bits, i));
    bytes[0][i] = static_cast<uint8_t>(value);
    bytes[1][i] = static_cast<uint8_t>(value >> 8);
  }
  return bytes;
}();

// How codes of a width become values.
template <uint8_t bits>
struct Codes {
  static constexpr CodePlane kUnit = code_plane(32, bits);
  static constexpr uint32_t kSlices = kUnit.slices;

  const uint8x16_t low = vld1q_u8(kValueBytes<bits>[0].data());
  const uint8x16_t high = vld1q_u8(kValueBytes<bits>[1].data());

  // Third bits of the chunk at byte `at` of a row's plane: of slice s at bit 2 s of each byte.
  static KV_INLINE uint8x16_t third_bits(const uint8_t* row, uint32_t dim, uint32_t at) {
    static constexpr uint8_t kPlace[kChunk] = {0, 1, 2,  3,  4,  5,  6,  7,
                                               8, 9, 10, 11, 12, 13, 14, 15};
    const uint8_t* plane = row + dim / 4;
    const uint32_t even_bytes = dim / 8;  // then the odd bits of the same bytes
    if (at + kChunk <= even_bytes) return vld1q_u8(plane + at);
    const uint8x16_t odd = vshrq_n_u8(vld1q_u8(plane + at - even_bytes), 1);
    if (at >= even_bytes) return odd;
    const auto left = static_cast<uint8_t>(even_bytes - at);
    return vbslq_u8(vcltq_u8(vld1q_u8(kPlace), vdupq_n_u8(left)), vld1q_u8(plane + at), odd);
  }

  // The 16 values of slice s of a chunk with these third bits (3 bit only).
  KV_INLINE Values16 values(uint32_t s, uint8x16_t chunk, uint8x16_t third) const {
    if constexpr (bits == 8) {
      const int8x16_t codes = vreinterpretq_s8_u8(chunk);
      return {vmovl_s8(vget_low_s8(codes)), vmovl_high_s8(codes)};
    } else {
      constexpr int kShift = static_cast<int>(kUnit.shift);
      const int down = kShift * static_cast<int>(s);
      const uint8x16_t low_bits = vdupq_n_u8((1 << kShift) - 1);
      uint8x16_t index = vshlq_u8(chunk, vdupq_n_s8(static_cast<int8_t>(-down)));
      if constexpr (bits == 3) {
        third = vshlq_u8(third, vdupq_n_s8(static_cast<int8_t>(2 - down)));
        index = vandq_u8(vbslq_u8(low_bits, index, third), vdupq_n_u8(7));
      } else {
        index = vandq_u8(index, low_bits);
      }
      const uint8x16_t l = vqtbl1q_u8(low, index), h = vqtbl1q_u8(high, index);
      return {vreinterpretq_s16_u8(vzip1q_u8(l, h)), vreinterpretq_s16_u8(vzip2q_u8(l, h))};
    }
  }
};

// ---- values

template <uint8_t bits>
void unpack_row(const uint8_t* row, uint32_t dim, int16_t* out) {
  const Codes<bits> set;
  const uint32_t bytes = code_plane(dim, bits).bytes;
  for (uint32_t at = 0; at < bytes; at += kChunk) {
    const uint8x16_t chunk = vld1q_u8(row + at);
    const uint8x16_t third = bits == 3 ? set.third_bits(row, dim, at) : chunk;
    for (uint32_t s = 0; s < set.kSlices; ++s) {
      const Values16 v = set.values(s, chunk, third);
      int16_t* to = out + s * bytes + at;
      if (at + kChunk <= bytes) {
        vst1q_s16(to, v.first);
        vst1q_s16(to + 8, v.second);
      } else {
        int16_t rest[kChunk];
        vst1q_s16(rest, v.first);
        vst1q_s16(rest + 8, v.second);
        std::memcpy(to, rest, (bytes - at) * sizeof(int16_t));
      }
    }
  }
}

template <uint8_t bits>
void unpack_rows(const uint8_t* codes, size_t rows, uint32_t dim, int16_t* out) {
  const size_t row_bytes = code_bytes(dim, bits);
  uint8_t copy[kMaxCodedDim + kCodeSlack] = {};
  for (; rows > 0; --rows, codes += row_bytes, out += dim) {
    const bool has_slack = (rows - 1) * row_bytes >= kCodeSlack;  // the rows that follow
    if (!has_slack) std::memcpy(copy, codes, row_bytes);
    unpack_row<bits>(has_slack ? codes : copy, dim, out);
  }
}

// ---- scores

// 4 registers of 4 int32 → their 4 sums.
KV_INLINE int32x4_t sum_four(const int32x4_t* s) {
  return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3]));
}

// `rows` rows with `count` queries, rows * count <= 8.
template <uint8_t bits, uint32_t rows, uint32_t count>
KV_INLINE void dot_rows(const Codes<bits>& set, const int16_t* queries, const uint8_t* codes,
                        uint32_t dim, int32_t* dots) {
  int32x4_t sums[8];
#pragma GCC unroll 8  // here and below so that arrays are registers
  for (auto& s : sums) s = vdupq_n_s32(0);
  const uint32_t bytes = code_plane(dim, bits).bytes, width = query_width(dim);
  const size_t row_bytes = code_bytes(dim, bits);
  const int16_t* q = queries;
  for (uint32_t at = 0; at < bytes; at += kChunk) {
    uint8x16_t chunk[rows], third[rows];
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; ++r) {
      chunk[r] = vld1q_u8(codes + r * row_bytes + at);
      third[r] = bits == 3 ? set.third_bits(codes + r * row_bytes, dim, at) : chunk[r];
    }
#pragma GCC unroll 4
    for (uint32_t s = 0; s < set.kSlices; ++s, q += kChunk) {
#pragma GCC unroll 8
      for (uint32_t r = 0; r < rows; ++r) {
        const Values16 v = set.values(s, chunk[r], third[r]);
#pragma GCC unroll 4
        for (uint32_t i = 0; i < count; ++i) {
          const int16x8_t a = vld1q_s16(q + i * width), b = vld1q_s16(q + i * width + 8);
          int32x4_t& sum = sums[i * rows + r];
          sum = vmlal_s16(sum, vget_low_s16(a), vget_low_s16(v.first));
          sum = vmlal_high_s16(sum, a, v.first);
          sum = vmlal_s16(sum, vget_low_s16(b), vget_low_s16(v.second));
          sum = vmlal_high_s16(sum, b, v.second);
        }
      }
    }
  }
  int32_t out[8];
  vst1q_s32(out, sum_four(sums));
  vst1q_s32(out + 4, sum_four(sums + 4));
#pragma GCC unroll 4
  for (uint32_t i = 0; i < count; ++i) {
    std::memcpy(dots + i * kScoreRows, out + i * rows, rows * sizeof(int32_t));
  }
}

template <uint8_t bits, uint32_t count>
void dot_tile(const int16_t* queries, const uint8_t* codes, size_t rows, uint32_t dim,
              int32_t* dots) {
  constexpr uint32_t kRows = count == 1 ? 8 : count == 2 ? 4 : 2;
  const Codes<bits> set;
  const size_t row_bytes = code_bytes(dim, bits);
  size_t r = 0;
  for (; r + kRows <= rows; r += kRows) {
    dot_rows<bits, kRows, count>(set, queries, codes + r * row_bytes, dim, dots + r);
  }
  for (; r < rows; ++r) {
    dot_rows<bits, 1, count>(set, queries, codes + r * row_bytes, dim, dots + r);
  }
}

// ---- weighted sums

// acc[0 … n) = fma(sums, factor, acc) for up to 16 values.
KV_INLINE void add_sums(const int32x4_t (&sums)[4], float factor, uint32_t n, float* acc) {
  float rest[kChunk] = {};
  float* to = n >= kChunk ? acc : rest;
  if (to == rest) std::memcpy(rest, acc, n * sizeof(float));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    vst1q_f32(to + 4 * i, vfmaq_n_f32(vld1q_f32(to + 4 * i), vcvtq_f32_s32(sums[i]), factor));
  }
  if (to == rest) std::memcpy(acc, rest, n * sizeof(float));
}

template <uint8_t bits, uint32_t count>
void add_tile(const int16_t* weights, const float* factors, const uint8_t* codes, uint32_t dim,
              float* acc, size_t stride) {
  const Codes<bits> set;
  const size_t row_bytes = code_bytes(dim, bits);
  const uint32_t bytes = code_plane(dim, bits).bytes;
  uint8_t third[bits == 3 ? kTileRows : 1][kChunk] = {};
  for (uint32_t at = 0; at < bytes; at += kChunk) {
    for (uint32_t r = 0; bits == 3 && r < kTileRows; ++r) {
      vst1q_u8(third[r], set.third_bits(codes + r * row_bytes, dim, at));
    }
    for (uint32_t s = 0; s < set.kSlices; ++s) {
      int32x4_t sums[count][4];
#pragma GCC unroll 4
      for (auto& sum : sums) sum[0] = sum[1] = sum[2] = sum[3] = vdupq_n_s32(0);
      for (uint32_t r = 0; r < kTileRows; ++r) {
        const Values16 v =
            set.values(s, vld1q_u8(codes + r * row_bytes + at), vld1q_u8(third[bits == 3 ? r : 0]));
#pragma GCC unroll 4
        for (uint32_t i = 0; i < count; ++i) {
          const int16_t w = weights[i * kTileRows + r];
          sums[i][0] = vmlal_n_s16(sums[i][0], vget_low_s16(v.first), w);
          sums[i][1] = vmlal_high_n_s16(sums[i][1], v.first, w);
          sums[i][2] = vmlal_n_s16(sums[i][2], vget_low_s16(v.second), w);
          sums[i][3] = vmlal_high_n_s16(sums[i][3], v.second, w);
        }
      }
#pragma GCC unroll 4
      for (uint32_t i = 0; i < count; ++i) {
        add_sums(sums[i], factors[i], bytes - at, acc + i * stride + s * bytes + at);
      }
    }
  }
}

// Calls f with bits as a constant.
template <typename F>
KV_INLINE void with_bits(uint8_t bits, F f) {
  switch (bits) {
    case 1:
      return f(std::integral_constant<uint8_t, 1>());
    case 2:
      return f(std::integral_constant<uint8_t, 2>());
    case 3:
      return f(std::integral_constant<uint8_t, 3>());
    case 4:
      return f(std::integral_constant<uint8_t, 4>());
    default:
      return f(std::integral_constant<uint8_t, 8>());
  }
}

// Calls f with bits and up to four queries as constants.
template <typename F>
KV_INLINE void with_shape(uint8_t bits, size_t count, F f) {
  with_bits(bits, [=](auto b) {
    switch (count) {
      case 1:
        return f(b, std::integral_constant<uint32_t, 1>());
      case 2:
        return f(b, std::integral_constant<uint32_t, 2>());
      case 3:
        return f(b, std::integral_constant<uint32_t, 3>());
      default:
        return f(b, std::integral_constant<uint32_t, 4>());
    }
  });
}

}  // namespace

void unpack(const uint8_t* codes, size_t rows, uint32_t dim, uint8_t bits, int16_t* out) {
  if (dim % 8 != 0) return scalar_kernels().unpack(codes, rows, dim, bits, out);
  with_bits(bits, [=](auto b) { unpack_rows<b()>(codes, rows, dim, out); });
}

void order_query(const int16_t* q, uint32_t dim, uint8_t bits, int16_t* out) {
  if (dim % 8 != 0) return scalar_kernels().order_query(q, dim, bits, out);
  std::memset(out, 0, query_width(dim) * sizeof(int16_t));
  const CodePlane plane = code_plane(dim, bits);
  for (uint32_t at = 0; at < plane.bytes; at += kChunk) {
    for (uint32_t s = 0; s < plane.slices; ++s, out += kChunk) {
      const int16_t* from = q + s * plane.bytes + at;
      std::copy_n(from, std::min(kChunk, plane.bytes - at), out);
    }
  }
}

void dot_codes(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows,
               uint32_t dim, uint8_t bits, int32_t* dots) {
  if (dim % 8 != 0) return scalar_kernels().dot_codes(queries, count, codes, rows, dim, bits, dots);
  for (size_t i = 0; i < count; i += kQueryGroup) {
    with_shape(bits, count - i, [=](auto b, auto n) {
      dot_tile<b(), n()>(queries + i * query_width(dim), codes, rows, dim, dots + i * kScoreRows);
    });
  }
}

void add_codes(const int16_t* weights, const float* factors, size_t count, const uint8_t* codes,
               uint32_t dim, uint8_t bits, float* acc, size_t stride) {
  if (dim % 8 != 0) {
    return scalar_kernels().add_codes(weights, factors, count, codes, dim, bits, acc, stride);
  }
  for (size_t i = 0; i < count; i += kQueryGroup) {
    with_shape(bits, count - i, [=](auto b, auto n) {
      add_tile<b(), n()>(weights + i * kTileRows, factors + i, codes, dim, acc + i * stride,
                         stride);
    });
  }
}

}  // namespace kv::neon
