// Products of panels with AVX-512: a register is one column of a panel. See panels.h, kernels.h.
#include <immintrin.h>

#include "engine/avx512.h"
#include "engine/kernel_tiles.h"
#include "engine/packed_avx2.h"
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
  KV_AVX512_INLINE Eight(const uint8_t* group, uint32_t k) : at(group + k * 128) {
    if constexpr (type == TensorType::q8_0) return;
    low = line(group + k * 64);
    const uint8_t* highs = group + panel_layout(type).high;
    if (type == TensorType::q5_0) high = shifted(line(highs), 8 * k);
    if (type == TensorType::q6_k) high = shifted(line(highs + k / 2 * 64), k % 2 * 16);
  }
  KV_AVX512_INLINE static __m512i shifted(__m512i v, uint32_t bits) {
    return _mm512_srl_epi32(v, _mm_cvtsi32_si128(static_cast<int>(bits)));
  }
  // Column i of them as integers. A look-up takes an index modulo 16.
  KV_AVX512_INLINE __m512 column(uint32_t i) const {
    if constexpr (type == TensorType::q8_0) return from_bytes(load16(at + i * kPanelRows));
    const __m512i nibble = _mm512_srli_epi32(low, i * 4);
    if constexpr (type == TensorType::q5_0) return joined(nibble, moved(high, i, 4), 31, 16);
    if constexpr (type == TensorType::q6_k) return joined(nibble, moved(high, i * 2, 4), 63, 32);
    return _mm512_permutexvar_ps(nibble, zero_to_15());
  }

  const uint8_t* at;
  __m512i low = {}, high = {};
};

template <TensorType type>
KV_AVX512_INLINE __m512 scale_of(const uint8_t* scales, const uint8_t* super, uint32_t half_group) {
  if constexpr (type == TensorType::q4_k) {
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
  const __m512 minimum = _mm512_mul_ps(
      halves(super + 32), _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(scales + 16))));
  return _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0f));
}

// Two panels: each row of activations is loaded once for both, and sums enough are under way to
// hide an addition's latency.
struct Avx512Panels {
  static constexpr uint32_t kMostRows = 4, kPanels = 2;

  template <TensorType type, uint32_t panels, uint32_t count>
  KV_AVX512 static void tile(const uint8_t* panel, uint64_t stride, uint32_t columns,
                             const float* x, size_t x_stride, const float* sums, float* y,
                             size_t y_stride) {
    constexpr PanelLayout at = panel_layout(type);
    __m512 acc[panels][count];
#pragma GCC unroll 2  // here and below so that the arrays are registers
    for (uint32_t p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) acc[p][b] = _mm512_setzero_ps();
    }
    for (uint32_t g = 0; g < columns / 32; ++g) {
      const uint8_t* group = panel + panel_group(type, g);
      const uint8_t *scales = group + at.scales, *super = panel + panel_super(type, g);
#pragma GCC unroll 2
      for (uint32_t p = 0; p < panels; ++p) prefetch_weights(group + p * stride, at.group);
      __m512 s[panels][count][2];
#pragma GCC unroll 2
      for (uint32_t p = 0; p < panels; ++p) {
#pragma GCC unroll 4
        for (uint32_t b = 0; b < count; ++b) s[p][b][0] = s[p][b][1] = _mm512_setzero_ps();
      }
#pragma GCC unroll 1  // of 32 columns the code would take a minute to compile
      for (uint32_t k = 0; k < 4; ++k) {
        add_eight<type, panels, count>(group, stride, k, x + g * 32 + k * 8, x_stride, s);
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
      if constexpr (!panel_offsets(type)) continue;
#pragma GCC unroll 2
      for (uint32_t p = 0; p < panels; ++p) {
        const __m512 offset = offset_of<type>(scales + p * stride, super + p * stride);
#pragma GCC unroll 4
        for (uint32_t b = 0; b < count; ++b) {
          const __m512 sum = _mm512_set1_ps(sums[b * (columns / 32) + g]);
          acc[p][b] = _mm512_fmadd_ps(offset, sum, acc[p][b]);
        }
      }
    }
#pragma GCC unroll 2
    for (uint32_t p = 0; p < panels; ++p) {
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) {
        _mm512_storeu_ps(y + b * y_stride + p * kPanelRows, acc[p][b]);
      }
    }
  }

 private:
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

PanelKernel avx512_panel_kernel(TensorType type) { return panel_kernel<Avx512Panels>(type); }

}  // namespace kv
