// Products of panels with AVX-512: a register is one column of a panel, or four as bytes. See
// panels.h, kernels.h.
#include <immintrin.h>

#include <cstring>

#include "engine/avx2.h"
#include "engine/avx512.h"
#include "engine/panel_tiles.h"

namespace kv {
namespace {

using namespace avx2;
using namespace avx512;

KV_AVX512_INLINE __m512i line(const uint8_t* p) { return _mm512_loadu_si512(p); }
KV_AVX512_INLINE __m512 halves(const uint8_t* p) { return _mm512_cvtph_ps(load32(p)); }
// `bits` with bit `from` moved to bit `to`.
KV_AVX512_INLINE __m512i moved(__m512i bits, uint32_t from, uint32_t to) {
  return from < to ? _mm512_slli_epi32(bits, to - from) : _mm512_srli_epi32(bits, from - to);
}

// `low` with its bits from 4 on from `high`, those of `mask`, as a float less `least`: the integer
// becomes the last bits of 2^23's significand, and 2^23 is taken off with `least`.
KV_AVX512_INLINE __m512 joined(__m512i low, __m512i high, int mask, int least) {
  const __m512i code = _mm512_ternarylogic_epi32(low, high, _mm512_set1_epi32(15), 0xe4);
  const __m512i bits =
      _mm512_ternarylogic_epi32(code, _mm512_set1_epi32(mask), _mm512_set1_epi32(0x4b000000), 0xea);
  return _mm512_sub_ps(_mm512_castsi512_ps(bits),
                       _mm512_set1_ps(static_cast<float>(0x800000 + least)));
}

// Columns 8 k … 8 k + 7 of a group.
template <TensorType type>
struct Eight {
  KV_AVX512_INLINE Eight(const uint8_t* group, uint32_t k) : at(group + k * 128 * kValue) {
    if constexpr (kValue != 0) return;
    low = line(group + k * 64);
    const uint8_t* highs = group + panel_layout(type).high;
    if constexpr (type == TensorType::q5_0) high = shifted(line(highs), k * 2);
    if constexpr (type == TensorType::q6_k) high = shifted(line(highs + k / 2 * 64), k % 2 * 16);
  }
  KV_AVX512_INLINE static __m512i shifted(__m512i v, uint32_t bits) {
    return _mm512_srl_epi32(v, _mm_cvtsi32_si128(static_cast<int>(bits)));
  }
  // Column i of them as they are.
  KV_AVX512_INLINE __m512 column(uint32_t i) const {
    if constexpr (type == TensorType::f32) return _mm512_loadu_ps(at + i * kPanelRows * 4);
    if constexpr (type == TensorType::f16) return halves(at + i * kPanelRows * 2);
    if constexpr (type == TensorType::q8_0) return from_bytes(load16(at + i * kPanelRows));
    const __m512i nibble = _mm512_srli_epi32(low, i * 4);
    if constexpr (type == TensorType::q6_k) return joined(nibble, moved(high, i * 2, 4), 63, 32);
    if constexpr (type == TensorType::q5_0) {
      return joined(nibble, moved(high, i / 2 * 8 + i % 2, 4), 31, 16);
    }
    return _mm512_permutexvar_ps(nibble, zero_to_15());  // by the lowest four bits alone
  }

  static constexpr uint32_t kValue = panel_value_bytes(type);
  const uint8_t* at;
  __m512i low = {}, high = {};
};

template <TensorType type>
KV_AVX512_INLINE __m512 scale_of(const uint8_t* scales, const uint8_t* super, uint32_t half_group) {
  if constexpr (panel_values(type)) {
    return _mm512_set1_ps(1);
  } else if constexpr (type == TensorType::q4_k) {
    return _mm512_mul_ps(halves(super), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(scales))));
  } else if constexpr (type == TensorType::q6_k) {
    return _mm512_mul_ps(halves(super), from_bytes(load16(scales + half_group * 16)));
  } else {
    return halves(scales);
  }
}

template <TensorType type>
KV_AVX512_INLINE __m512 offset_of(const uint8_t* scales, const uint8_t* super) {
  if constexpr (type == TensorType::q4_1) return halves(scales + 32);
  if constexpr (type == TensorType::q5_0) {
    return _mm512_mul_ps(halves(scales), _mm512_set1_ps(-16.0f));
  }
  const __m512 minimum = _mm512_mul_ps(
      halves(super + 32), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(scales + 16))));
  return _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0f));
}

// The offset in a product with a band: 0 for types that have none.
template <TensorType type>
KV_AVX512_INLINE __m512 added_offset_of(const uint8_t* scales, const uint8_t* super) {
  if constexpr (has_offsets(type)) return offset_of<type>(scales, super);
  return _mm512_setzero_ps();
}
// A code times its scale is exact (4 bits times at most 17), so a fused sum is the separate one.
template <TensorType type>
KV_AVX512_INLINE __m512 weight_of(__m512 column, __m512 scale, __m512 offset) {
  if constexpr (panel_values(type)) return column;
  if constexpr (has_offsets(type)) return _mm512_fmadd_ps(column, scale, offset);
  return _mm512_mul_ps(column, scale);
}

KV_AVX512_INLINE __m512i four_of(const int8_t* codes) {  // four neighbours, in every lane
  int32_t four;
  std::memcpy(&four, codes, 4);
  return _mm512_set1_epi32(four);
}

// sum += the products of four unsigned bytes and four signed ones, in place: left alone, the
// compiler copies every sum to and fro in the innermost loop.
KV_AVX512_INLINE void add_products(__m512i& sum, __m512i weights, __m512i codes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights), "v"(codes));
}

// Two panels: each row of activations is loaded once for both, and sums enough are under way to
// hide an addition's latency.
struct Avx512Panels {
  static constexpr uint32_t kMostRows = 4, kMostChained = 8, kPanels = 2;

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512 static void tile(const uint8_t* panel, uint64_t stride, uint32_t columns,
                             const Activations& x, float* y, size_t y_stride) {
    walk<type, panels, count, false>(panel, stride, columns, x, y, y_stride);
  }

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512 static void chain(const uint8_t* panel, uint64_t stride, uint32_t columns,
                              const Activations& x, float* y, size_t y_stride) {
    walk<type, panels, count, true>(panel, stride, columns, x, y, y_stride);
  }

  template <TensorType type>
  KV_AVX512 static void widen(const uint8_t* panel, uint32_t first, uint32_t end, float* out) {
    for (uint32_t g = first; g < end; ++g) {
      const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
      const uint8_t* scales = group + panel_layout(type).scales;
      prefetch_weights(group, panel_layout(type).group, kWidenAhead);
      const __m512 offset = added_offset_of<type>(scales, super);
#pragma GCC unroll 1
      for (uint32_t k = 0; k < 4; ++k) {
        const Eight<type> eight(group, k);
        const __m512 scale = scale_of<type>(scales, super, k / 2);
#pragma GCC unroll 8
        for (uint32_t i = 0; i < 8; ++i, out += kBandColumns) {
          _mm512_storeu_ps(out, weight_of<type>(eight.column(i), scale, offset));
        }
      }
    }
  }

 private:
  template <TensorType type, uint32_t panels, uint32_t count, bool chained>
  KV_AVX512_INLINE static void walk(const uint8_t* panel, uint64_t stride, uint32_t columns,
                                    const Activations& x, float* y, size_t y_stride) {
    __m512 acc[panels][count];
#pragma GCC unroll 2  // here and below so that the arrays are registers
    for (uint32_t p = 0; p < panels; ++p) {
#pragma GCC unroll 8
      for (uint32_t b = 0; b < count; ++b) acc[p][b] = _mm512_setzero_ps();
    }
    for (uint32_t g = 0; g < columns / 32; ++g) {
#pragma GCC unroll 2
      for (uint32_t p = 0; p < panels; ++p) {
        prefetch_weights(panel + panel_group(type, g) + p * stride, panel_layout(type).group,
                         panels * stride);
      }
      if constexpr (chained) {
        chain_group<type, panels, count>(panel, stride, g, x, acc);
      } else if constexpr (panel_integers(type)) {
        add_integers<type, panels, count>(panel, stride, g, columns, x, acc);
      } else {
        add_floats<type, panels, count>(panel, stride, g, x, acc);
      }
    }
#pragma GCC unroll 2
    for (uint32_t p = 0; p < panels; ++p) {
#pragma GCC unroll 8
      for (uint32_t b = 0; b < count; ++b) {
        _mm512_storeu_ps(y + b * y_stride + p * kPanelRows, acc[p][b]);
      }
    }
  }

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512_INLINE static void chain_group(const uint8_t* panel, uint64_t stride, uint32_t g,
                                           const Activations& x, __m512 (&acc)[panels][count]) {
    const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
    const uint8_t* scales = group + panel_layout(type).scales;
    const size_t last = (panels - 1) * stride;
    const __m512 offset[2] = {added_offset_of<type>(scales, super),
                              added_offset_of<type>(scales + last, super + last)};
#pragma GCC unroll 1
    for (uint32_t k = 0; k < 4; ++k) {
      const Eight<type> eights[2] = {{group, k}, {group + last, k}};
      const __m512 scale[2] = {scale_of<type>(scales, super, k / 2),
                               scale_of<type>(scales + last, super + last, k / 2)};
#pragma GCC unroll 8
      for (uint32_t i = 0; i < 8; ++i) {
        __m512 w[panels];
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; ++p) {
          w[p] = weight_of<type>(eights[p].column(i), scale[p], offset[p]);
        }
#pragma GCC unroll 8
        for (uint32_t b = 0; b < count; ++b) {
          const __m512 xb = _mm512_set1_ps(x.x[b * x.stride + g * 32 + k * 8 + i]);
#pragma GCC unroll 2
          for (uint32_t p = 0; p < panels; ++p) acc[p][b] = _mm512_fmadd_ps(xb, w[p], acc[p][b]);
        }
      }
    }
  }

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512_INLINE static void add_integers(const uint8_t* panel, uint64_t stride, uint32_t g,
                                            uint32_t columns, const Activations& x,
                                            __m512 (&acc)[panels][count]) {
    const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
    __m512i dots[panels][count][3];  // of each byte of the codes
#pragma GCC unroll 2
    for (uint32_t p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) {
        dots[p][b][0] = dots[p][b][1] = dots[p][b][2] = _mm512_setzero_si512();
      }
    }
    __m512i high[2] = {};  // fifth bits: of each byte the lowest two are the line's
    if constexpr (type == TensorType::q5_0) {
      high[0] = line(group + panel_layout(type).high);
      high[1] = line(group + panel_layout(type).high + (panels - 1) * stride);
    }
#pragma GCC unroll 1
    for (uint32_t k = 0; k < 4; ++k) {
      add_eight_integers<type, panels, count>(
          group + k * 64, stride, high, x.codes + rounded_bytes(g * 32 + k * 8), columns, dots);
      if (type != TensorType::q5_0) continue;
      high[0] = _mm512_srli_epi32(high[0], 2);
      high[1] = _mm512_srli_epi32(high[1], 2);
    }
    const uint8_t* scales = group + panel_layout(type).scales;
#pragma GCC unroll 2
    for (uint32_t p = 0; p < panels; ++p) {
      const __m512 scale = scale_of<type>(scales + p * stride, super + p * stride, 0);
      const __m512 offset = offset_of<type>(scales + p * stride, super + p * stride);
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) {
        const size_t at = b * size_t{columns / 32} + g;
        const __m512i low = _mm512_add_epi32(_mm512_slli_epi32(dots[p][b][1], 8), dots[p][b][2]);
        const __m512 sum = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[p][b][0]),
                                           _mm512_set1_ps(65536.0f), _mm512_cvtepi32_ps(low));
        const __m512 both = _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[at]));
        acc[p][b] = _mm512_fmadd_ps(sum, both, acc[p][b]);
        acc[p][b] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x.sums[at]), acc[p][b]);
      }
    }
  }

  // The even columns' codes of a line, or the odd ones'.
  template <TensorType type>
  KV_AVX512_INLINE static __m512i codes_of(__m512i low, __m512i high, uint32_t odd) {
    const __m512i nibbles =
        _mm512_and_si512(_mm512_srli_epi32(low, odd * 4), _mm512_set1_epi32(0x0f0f0f0f));
    if constexpr (type != TensorType::q5_0) return nibbles;
    return _mm512_ternarylogic_epi32(nibbles, _mm512_slli_epi32(high, 4 - odd),
                                     _mm512_set1_epi32(0x10101010), 0xf8);  // a | (b & c)
  }

  // dots += a line of each panel times its eight codes of each row.
  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512_INLINE static void add_eight_integers(const uint8_t* line_at, uint64_t stride,
                                                  const __m512i (&high)[2], const int8_t* codes,
                                                  uint32_t columns,
                                                  __m512i (&dots)[panels][count][3]) {
    const __m512i lines[2] = {line(line_at), line(line_at + (panels - 1) * stride)};
#pragma GCC unroll 2
    for (uint32_t odd = 0; odd < 2; ++odd) {
      __m512i w[panels];
#pragma GCC unroll 2
      for (uint32_t p = 0; p < panels; ++p) w[p] = codes_of<type>(lines[p], high[p], odd);
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) {
#pragma GCC unroll 3
        for (uint32_t d = 0; d < 3; ++d) {
          const __m512i xb = four_of(codes + b * rounded_bytes(columns) + odd * 16 + d * 4);
#pragma GCC unroll 2
          for (uint32_t p = 0; p < panels; ++p) add_products(dots[p][b][d], w[p], xb);
        }
      }
    }
  }

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512_INLINE static void add_floats(const uint8_t* panel, uint64_t stride, uint32_t g,
                                          const Activations& x, __m512 (&acc)[panels][count]) {
    const uint8_t *group = panel + panel_group(type, g), *super = panel + panel_super(type, g);
    const uint8_t* scales = group + panel_layout(type).scales;
    __m512 s[panels][count][2];
#pragma GCC unroll 2
    for (uint32_t p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) s[p][b][0] = s[p][b][1] = _mm512_setzero_ps();
    }
#pragma GCC unroll 1  // of 32 columns the code would take a minute to compile
    for (uint32_t k = 0; k < 4; ++k) {
      add_eight<type, panels, count>(group, stride, k, x.x + g * 32 + k * 8, x.stride, s);
      if (k != 3 && !(k == 1 && panel_halves<type>)) continue;
#pragma GCC unroll 2
      for (uint32_t p = 0; p < panels; ++p) {
        const __m512 scale = scale_of<type>(scales + p * stride, super + p * stride, k / 2);
#pragma GCC unroll 4
        for (uint32_t b = 0; b < count; ++b) {
          acc[p][b] = _mm512_fmadd_ps(_mm512_add_ps(s[p][b][0], s[p][b][1]), scale, acc[p][b]);
          s[p][b][0] = s[p][b][1] = _mm512_setzero_ps();
        }
      }
    }
  }

  // s += columns 8 k … 8 k + 7 times theirs of x.
  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512_INLINE static void add_eight(const uint8_t* group, uint64_t stride, uint32_t k,
                                         const float* x, size_t x_stride,
                                         __m512 (&s)[panels][count][2]) {
    const Eight<type> first(group, k), last(group + (panels - 1) * stride, k);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < 8; ++i) {
      const __m512 w[2] = {first.column(i), panels == 2 ? last.column(i) : _mm512_setzero_ps()};
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) {
        const __m512 xb = _mm512_set1_ps(x[b * x_stride + i]);
#pragma GCC unroll 2
        for (uint32_t p = 0; p < panels; ++p) {
          s[p][b][i % 2] = _mm512_fmadd_ps(w[p], xb, s[p][b][i % 2]);
        }
      }
    }
  }
};

}  // namespace

TypeKernels avx512_panels(TensorType type) { return panel_kernels<Avx512Panels>(type); }

const EngineKernels* avx512_engine_kernels() {
  if (avx512_kernels() == nullptr) return nullptr;
  const EngineKernels& avx2 = *avx2_engine_kernels();
  static const EngineKernels kAvx512 = {
      "avx512", 8, avx512_panels, avx2.round, avx512_band_product, avx2.transpose};
  return &kAvx512;
}

}  // namespace kv
