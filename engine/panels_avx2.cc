// Products of panels with AVX2: a register is half a column of a panel, or of four columns as
// bytes. See panels.h, kernels.h.
//
// Only functions marked KV_AVX2 may run these instructions: after avx2_engine_kernels() has asked
// the machine.
#include <immintrin.h>

#include <cstring>

#include "engine/avx2.h"
#include "engine/panel_tiles.h"

namespace kv {
namespace {

using namespace avx2;

KV_AVX2_INLINE __m256 halves(const uint8_t* p) { return _mm256_cvtph_ps(load16(p)); }
KV_AVX2_INLINE __m128i load8(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}
KV_AVX2_INLINE __m256 bytes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p)));
}
KV_AVX2_INLINE __m256 unsigned_bytes(const uint8_t* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p)));
}
// `bits` with those that begin at `from` moved to `to`, all but those of `mask` cleared.
KV_AVX2_INLINE __m256i picked(__m256i bits, uint32_t from, uint32_t to, int mask) {
  const __m256i moved =
      from < to ? _mm256_slli_epi32(bits, to - from) : _mm256_srli_epi32(bits, from - to);
  return _mm256_and_si256(moved, _mm256_set1_epi32(mask));
}

// 8 rows, from `lane` on, of columns 8 k … 8 k + 7 of a group.
template <TensorType type>
struct Eight {
  KV_AVX2_INLINE Eight(const uint8_t* group, uint32_t k, uint32_t lane)
      : at(group + (k * 128 + lane) * kValue) {
    if constexpr (kValue != 0) return;
    low = load32(group + k * 64 + lane * 4);
    const uint8_t* highs = group + panel_layout(type).high + lane * 4;
    if constexpr (type == TensorType::q5_0) high = shifted(load32(highs), k * 2);
    if constexpr (type == TensorType::q6_k) high = shifted(load32(highs + k / 2 * 64), k % 2 * 16);
  }
  KV_AVX2_INLINE static __m256i shifted(__m256i v, uint32_t bits) {
    return _mm256_srl_epi32(v, _mm_cvtsi32_si128(static_cast<int>(bits)));
  }
  // Column i of them as they are.
  KV_AVX2_INLINE __m256 column(uint32_t i) const {
    if constexpr (type == TensorType::f32) {
      return _mm256_loadu_ps(reinterpret_cast<const float*>(at + i * kPanelRows * 4));
    }
    if constexpr (type == TensorType::f16) return halves(at + i * kPanelRows * 2);
    if constexpr (type == TensorType::q8_0) return bytes(at + i * kPanelRows);
    __m256i code = picked(low, i * 4, 0, 15);
    if constexpr (type == TensorType::q6_k) {
      code = _mm256_or_si256(code, picked(high, i * 2, 4, 48));
      code = _mm256_sub_epi32(code, _mm256_set1_epi32(32));
    } else if constexpr (type == TensorType::q5_0) {
      code = _mm256_or_si256(code, picked(high, i / 2 * 8 + i % 2, 4, 16));
      code = _mm256_sub_epi32(code, _mm256_set1_epi32(16));
    }
    return _mm256_cvtepi32_ps(code);
  }

  static constexpr uint32_t kValue = panel_value_bytes(type);
  const uint8_t* at;
  __m256i low = {}, high = {};
};

template <TensorType type>
KV_AVX2_INLINE __m256 scale_of(const uint8_t* scales, const uint8_t* super, uint32_t half_group,
                               uint32_t lane) {
  if constexpr (panel_values(type)) {
    return _mm256_set1_ps(1);
  } else if constexpr (type == TensorType::q4_k) {
    return _mm256_mul_ps(halves(super + lane * 2), unsigned_bytes(scales + lane));
  } else if constexpr (type == TensorType::q6_k) {
    return _mm256_mul_ps(halves(super + lane * 2), bytes(scales + half_group * 16 + lane));
  } else {
    return halves(scales + lane * 2);
  }
}

template <TensorType type>
KV_AVX2_INLINE __m256 offset_of(const uint8_t* scales, const uint8_t* super, uint32_t lane) {
  if constexpr (type == TensorType::q4_1) return halves(scales + 32 + lane * 2);
  if constexpr (type == TensorType::q5_0) {
    return _mm256_mul_ps(halves(scales + lane * 2), _mm256_set1_ps(-16.0f));
  }
  const __m256 minimum =
      _mm256_mul_ps(halves(super + 32 + lane * 2), unsigned_bytes(scales + 16 + lane));
  return _mm256_xor_ps(minimum, _mm256_set1_ps(-0.0f));
}

// The offset in a product with a band: 0 for types that have none.
template <TensorType type>
KV_AVX2_INLINE __m256 added_offset_of(const uint8_t* scales, const uint8_t* super, uint32_t lane) {
  if constexpr (has_offsets(type)) return offset_of<type>(scales, super, lane);
  return _mm256_setzero_ps();
}
// A code times its scale is exact (4 bits times at most 17), so a fused sum is the separate one.
template <TensorType type>
KV_AVX2_INLINE __m256 weight_of(__m256 column, __m256 scale, __m256 offset) {
  if constexpr (panel_values(type)) return column;
  if constexpr (has_offsets(type)) return _mm256_fmadd_ps(column, scale, offset);
  return _mm256_mul_ps(column, scale);
}

KV_AVX2_INLINE __m256i four_of(const int8_t* codes) {  // four neighbours, in every lane
  int32_t four;
  std::memcpy(&four, codes, 4);
  return _mm256_set1_epi32(four);
}

// 8 rows of one panel with `count` rows of activations, as floats.
template <TensorType type, uint32_t count>
struct HalfTile {
  KV_AVX2_INLINE static void run(const uint8_t* panel, uint64_t stride, uint32_t lane,
                                 uint32_t columns, const Activations& x, float* y,
                                 size_t y_stride) {
    __m256 acc[count];
#pragma GCC unroll 4  // here and below so that the arrays are registers
    for (uint32_t b = 0; b < count; ++b) acc[b] = _mm256_setzero_ps();
    for (uint32_t g = 0; g < columns / 32; ++g) {
      if (lane == 0) {
        prefetch_weights(panel + panel_group(type, g), panel_layout(type).group, stride);
      }
      add_floats(panel, lane, g, x, acc);
    }
#pragma GCC unroll 4
    for (uint32_t b = 0; b < count; ++b) _mm256_storeu_ps(y + b * y_stride + lane, acc[b]);
  }

 private:
  KV_AVX2_INLINE static void add_floats(const uint8_t* panel, uint32_t lane, uint32_t g,
                                        const Activations& x, __m256 (&acc)[count]) {
    const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
    __m256 s[count][2];
#pragma GCC unroll 4
    for (uint32_t b = 0; b < count; ++b) s[b][0] = s[b][1] = _mm256_setzero_ps();
#pragma GCC unroll 1  // of 32 columns the code would take long to compile
    for (uint32_t k = 0; k < 4; ++k) {
      const Eight<type> eight(group, k, lane);
      const float* xk = x.x + g * 32 + k * 8;
#pragma GCC unroll 8
      for (uint32_t i = 0; i < 8; ++i) {
        const __m256 w = eight.column(i);
#pragma GCC unroll 4
        for (uint32_t b = 0; b < count; ++b) {
          const __m256 xb = _mm256_broadcast_ss(xk + b * x.stride + i);
          s[b][i % 2] = _mm256_fmadd_ps(w, xb, s[b][i % 2]);
        }
      }
      if (k != 3 && !(k == 1 && panel_halves<type>)) continue;
      const __m256 scale = scale_of<type>(group + panel_layout(type).scales, super, k / 2, lane);
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) {
        acc[b] = _mm256_fmadd_ps(_mm256_add_ps(s[b][0], s[b][1]), scale, acc[b]);
        s[b][0] = s[b][1] = _mm256_setzero_ps();
      }
    }
  }
};

// One panel with `count` rows of rounded activations: what is spread over a register is loaded once
// for both halves of the panel. A processor loads two registers at a time, and a load for every
// product took up to 1.4 times as long.
template <TensorType type, uint32_t count>
struct IntegerTile {
  using Dots = __m256i[count][2][3];  // [b][half][byte of a code], 16 bits a sum
  using Sums = __m256i[count][2][2];  // of the codes' highest bytes, and of their lower two
  // As many lines' products fit in 16 bits: of 16 columns up to 15 * 128 each, of 8 up to 31 * 128.
  static constexpr uint32_t kLines = type == TensorType::q5_0 ? 2 : 4;

  KV_AVX2_INLINE static void run(const uint8_t* panel, uint64_t stride, uint32_t columns,
                                 const Activations& x, float* y, size_t y_stride) {
    __m256 acc[count][2];
#pragma GCC unroll 2  // here and below so that the arrays are registers
    for (uint32_t b = 0; b < count; ++b) acc[b][0] = acc[b][1] = _mm256_setzero_ps();
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
      prefetch_weights(group, panel_layout(type).group, stride);
      Sums sums;
      add_lines(group, x.codes + rounded_bytes(g * 32), columns, sums);
      add_group(group + panel_layout(type).scales, super, columns / 32, g, x, sums, acc);
    }
#pragma GCC unroll 2
    for (uint32_t b = 0; b < count; ++b) {
      _mm256_storeu_ps(y + b * y_stride, acc[b][0]);
      _mm256_storeu_ps(y + b * y_stride + 8, acc[b][1]);
    }
  }

 private:
  // sums = a group's.
  KV_AVX2_INLINE static void add_lines(const uint8_t* group, const int8_t* codes, uint32_t columns,
                                       Sums& sums) {
    __m256i high[2] = {};  // fifth bits: of each byte the lowest two are the line's
    if constexpr (type == TensorType::q5_0) {
      high[0] = load32(group + panel_layout(type).high);
      high[1] = load32(group + panel_layout(type).high + 32);
    }
#pragma GCC unroll 1
    for (uint32_t first = 0; first < 4; first += kLines) {
      Dots dots;
#pragma GCC unroll 2
      for (uint32_t b = 0; b < count; ++b) {
#pragma GCC unroll 6
        for (uint32_t i = 0; i < 6; ++i) dots[b][i / 3][i % 3] = _mm256_setzero_si256();
      }
#pragma GCC unroll 1
      for (uint32_t k = first; k < first + kLines; ++k) {
        add_eight(group + k * 64, high, codes + rounded_bytes(k * 8), columns, dots);
        if (type != TensorType::q5_0) continue;
        high[0] = _mm256_srli_epi32(high[0], 2);
        high[1] = _mm256_srli_epi32(high[1], 2);
      }
      widen(dots, first > 0, sums);
    }
  }

  // The even columns' codes of half a line, or the odd ones'.
  KV_AVX2_INLINE static __m256i codes_of(const uint8_t* half_line, __m256i high, uint32_t odd) {
    const __m256i low = picked(load32(half_line), odd * 4, 0, 0x0f0f0f0f);
    if constexpr (type != TensorType::q5_0) return low;
    return _mm256_or_si256(low, picked(high, odd, 4, 0x10101010));
  }

  // dots += a line times its eight codes of each row.
  KV_AVX2_INLINE static void add_eight(const uint8_t* line, const __m256i (&high)[2],
                                       const int8_t* codes, uint32_t columns, Dots& dots) {
#pragma GCC unroll 2
    for (uint32_t odd = 0; odd < 2; ++odd) {
      const __m256i w[2] = {codes_of(line, high[0], odd), codes_of(line + 32, high[1], odd)};
#pragma GCC unroll 2
      for (uint32_t b = 0; b < count; ++b) {
#pragma GCC unroll 3
        for (uint32_t d = 0; d < 3; ++d) {
          const __m256i xb = four_of(codes + b * rounded_bytes(columns) + odd * 16 + d * 4);
#pragma GCC unroll 2
          for (uint32_t half = 0; half < 2; ++half) {
            __m256i& sum = dots[b][half][d];
            sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(w[half], xb));
            asm("" : "+x"(sum));  // in a register, in this order
          }
        }
      }
    }
  }

  // sums = dots, or += where there are `more`.
  KV_AVX2_INLINE static void widen(const Dots& dots, bool more, Sums& sums) {
    const __m256i ones = _mm256_set1_epi16(1), by_256 = _mm256_set1_epi16(256);
#pragma GCC unroll 2
    for (uint32_t b = 0; b < count; ++b) {
#pragma GCC unroll 2
      for (uint32_t half = 0; half < 2; ++half) {
        const __m256i(&dot)[3] = dots[b][half];
        const __m256i high = _mm256_madd_epi16(dot[0], ones);
        const __m256i low =
            _mm256_add_epi32(_mm256_madd_epi16(dot[1], by_256), _mm256_madd_epi16(dot[2], ones));
        __m256i(&sum)[2] = sums[b][half];
        sum[0] = more ? _mm256_add_epi32(sum[0], high) : high;
        sum[1] = more ? _mm256_add_epi32(sum[1], low) : low;
      }
    }
  }

  KV_AVX2_INLINE static void add_group(const uint8_t* scales, const uint8_t* super, uint32_t groups,
                                       uint32_t g, const Activations& x, const Sums& sums,
                                       __m256 (&acc)[count][2]) {
#pragma GCC unroll 2
    for (uint32_t half = 0; half < 2; ++half) {
      const __m256 scale = scale_of<type>(scales, super, 0, half * 8);
      const __m256 offset = offset_of<type>(scales, super, half * 8);
#pragma GCC unroll 2
      for (uint32_t b = 0; b < count; ++b) {
        const size_t at = b * size_t{groups} + g;
        const __m256 both = _mm256_mul_ps(scale, _mm256_broadcast_ss(x.scales + at));
        const __m256 sum =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sums[b][half][0]), _mm256_set1_ps(65536.0f),
                            _mm256_cvtepi32_ps(sums[b][half][1]));
        acc[b][half] = _mm256_fmadd_ps(sum, both, acc[b][half]);
        acc[b][half] = _mm256_fmadd_ps(offset, _mm256_broadcast_ss(x.sums + at), acc[b][half]);
      }
    }
  }
};

struct Avx2Panels {
  static constexpr uint32_t kMostRows = 4, kMostChained = 4, kPanels = 1;

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX2 static void tile(const uint8_t* panel, uint64_t stride, uint32_t columns,
                           const Activations& x, float* y, size_t y_stride) {
    if constexpr (panel_integers(type)) {
      IntegerTile<type, std::min(count, 2u)>::run(panel, stride, columns, x, y, y_stride);
      if constexpr (count > 2) {  // sums of more don't fit in registers
        IntegerTile<type, count - 2>::run(panel, stride, columns, rows_from(x, 2, columns),
                                          y + 2 * y_stride, y_stride);
      }
    } else {
      for (uint32_t lane = 0; lane < kPanelRows; lane += 8) {
        HalfTile<type, count>::run(panel, stride, lane, columns, x, y, y_stride);
      }
    }
  }

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX2 static void chain(const uint8_t* panel, uint64_t stride, uint32_t columns,
                            const Activations& x, float* y, size_t y_stride) {
    __m256 acc[count][2];
#pragma GCC unroll 4
    for (uint32_t b = 0; b < count; ++b) acc[b][0] = acc[b][1] = _mm256_setzero_ps();
    for (uint32_t g = 0; g < columns / 32; ++g) {
      prefetch_weights(panel + panel_group(type, g), panel_layout(type).group, stride);
      chain_group<type, count>(panel, g, x, acc);
    }
#pragma GCC unroll 4
    for (uint32_t b = 0; b < count; ++b) {
      _mm256_storeu_ps(y + b * y_stride, acc[b][0]);
      _mm256_storeu_ps(y + b * y_stride + 8, acc[b][1]);
    }
  }

  template <TensorType type>
  KV_AVX2 static void widen(const uint8_t* panel, uint32_t first, uint32_t end, float* out) {
    for (uint32_t g = first; g < end; ++g) {
      prefetch_weights(panel + panel_group(type, g), panel_layout(type).group, kWidenAhead);
      for (uint32_t lane = 0; lane < kPanelRows; lane += 8) {
        widen_half<type>(panel, g, lane, out + size_t{g - first} * 32 * kBandColumns + lane);
      }
    }
  }

 private:
  template <TensorType type, uint32_t count>
  KV_AVX2_INLINE static void chain_group(const uint8_t* panel, uint32_t g, const Activations& x,
                                         __m256 (&acc)[count][2]) {
    const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
    const uint8_t* scales = group + panel_layout(type).scales;
    const __m256 offset[2] = {added_offset_of<type>(scales, super, 0),
                              added_offset_of<type>(scales, super, 8)};
#pragma GCC unroll 1
    for (uint32_t k = 0; k < 4; ++k) {
      const Eight<type> eights[2] = {{group, k, 0}, {group, k, 8}};
      const __m256 scale[2] = {scale_of<type>(scales, super, k / 2, 0),
                               scale_of<type>(scales, super, k / 2, 8)};
#pragma GCC unroll 8
      for (uint32_t i = 0; i < 8; ++i) {
        const __m256 w[2] = {weight_of<type>(eights[0].column(i), scale[0], offset[0]),
                             weight_of<type>(eights[1].column(i), scale[1], offset[1])};
#pragma GCC unroll 4
        for (uint32_t b = 0; b < count; ++b) {
          const __m256 xb = _mm256_broadcast_ss(x.x + b * x.stride + g * 32 + k * 8 + i);
          acc[b][0] = _mm256_fmadd_ps(xb, w[0], acc[b][0]);
          acc[b][1] = _mm256_fmadd_ps(xb, w[1], acc[b][1]);
        }
      }
    }
  }

  template <TensorType type>
  KV_AVX2_INLINE static void widen_half(const uint8_t* panel, uint32_t g, uint32_t lane,
                                        float* out) {
    const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
    const uint8_t* scales = group + panel_layout(type).scales;
    const __m256 offset = added_offset_of<type>(scales, super, lane);
#pragma GCC unroll 1
    for (uint32_t k = 0; k < 4; ++k) {
      const Eight<type> eight(group, k, lane);
      const __m256 scale = scale_of<type>(scales, super, k / 2, lane);
#pragma GCC unroll 8
      for (uint32_t i = 0; i < 8; ++i, out += kBandColumns) {
        _mm256_storeu_ps(out, weight_of<type>(eight.column(i), scale, offset));
      }
    }
  }
};

}  // namespace

TypeKernels avx2_panels(TensorType type) { return panel_kernels<Avx2Panels>(type); }

}  // namespace kv
