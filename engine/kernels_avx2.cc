// AVX2 kernels. Only functions marked KV_AVX2 may run these instructions. See kernels.h.
#include <immintrin.h>

#include <cstring>

#include "engine/kernel_tiles.h"
#include "engine/packed_avx2.h"
#include "engine/panel_tiles.h"
#include "engine/rounded.h"

namespace kv {
namespace {

using namespace avx2;

// 32 weights of a row: columns 8 k … in w[k].
template <TensorType type>
KV_AVX2_INLINE void weights_of(const uint8_t* row, uint32_t g, __m256 (&w)[4]) {
  if constexpr (type == TensorType::f32) {
#pragma GCC unroll 4  // here and below so that arrays are registers
    for (uint32_t k = 0; k < 4; ++k) {
      w[k] = _mm256_loadu_ps(reinterpret_cast<const float*>(row + g * 128 + k * 32));
    }
  } else if constexpr (type == TensorType::f16) {
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; ++k) w[k] = _mm256_cvtph_ps(load16(row + g * 64 + k * 16));
  } else {
    const Group group = unpack<type>(row, g);
    const __m256 low = _mm256_set1_ps(group.scale[0]);
    const __m256 high = type == TensorType::q6_k ? _mm256_set1_ps(group.scale[1]) : low;
    const __m256 q[4] = {floats<0>(group.q), floats<1>(group.q), floats<2>(group.q),
                         floats<3>(group.q)};
    const __m256 offset = _mm256_set1_ps(group.offset);
#pragma GCC unroll 4
    for (uint32_t k = 0; k < 4; ++k) {
      const __m256 scale = k < 2 ? low : high;
      w[k] = has_offsets(type) ? _mm256_fmadd_ps(q[k], scale, offset) : _mm256_mul_ps(q[k], scale);
    }
  }
}

struct Avx2 {
  static constexpr uint32_t kMostRows = 4;
  static constexpr uint32_t weight_rows(uint32_t count) { return std::max(4 / count, 1u); }

  template <TensorType type, uint32_t many, uint32_t count>
  KV_AVX2 static void tile(const uint8_t* w, uint64_t stride, uint32_t columns, const float* x,
                           size_t x_stride, float* y, size_t y_stride) {
    __m256 acc[many][count][2];  // lanes 0-7 and 8-15
#pragma GCC unroll 4
    for (uint32_t r = 0; r < many; ++r) {
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) acc[r][b][0] = acc[r][b][1] = _mm256_setzero_ps();
    }
    const size_t part = many * stride * 32 / columns;
    for (uint32_t g = 0; g < columns / 32; ++g) {
      prefetch_weights(w + g * part, part);
#pragma GCC unroll 4
      for (uint32_t r = 0; r < many; ++r) {
        __m256 weights[4];
        weights_of<type>(w + r * stride, g, weights);
#pragma GCC unroll 4
        for (uint32_t b = 0; b < count; ++b) {
          const float* xb = x + b * x_stride + g * 32;
#pragma GCC unroll 4
          for (uint32_t k = 0; k < 4; ++k) {
            acc[r][b][k % 2] =
                _mm256_fmadd_ps(weights[k], _mm256_loadu_ps(xb + k * 8), acc[r][b][k % 2]);
          }
        }
      }
    }
#pragma GCC unroll 4
    for (uint32_t r = 0; r < many; ++r) {
#pragma GCC unroll 4
      for (uint32_t b = 0; b < count; ++b) {
        y[b * y_stride + r] = lanes_sum(_mm256_add_ps(acc[r][b][0], acc[r][b][1]));
      }
    }
  }
};

template <TensorType type>
KV_AVX2 void widen(const uint8_t* w, uint32_t columns, float* out) {
  if constexpr (type == TensorType::f32) {
    std::memcpy(out, w, columns * sizeof(float));
  } else if constexpr (type == TensorType::f16) {
    for (uint32_t j = 0; j < columns; j += 8) {
      _mm256_storeu_ps(out + j, _mm256_cvtph_ps(load16(w + j * 2)));
    }
  } else {
    for (uint32_t g = 0; g < columns / 32; ++g, out += 32) {
      const Group group = unpack<type>(w, g);
      const __m256 low = _mm256_set1_ps(group.scale[0]), high = _mm256_set1_ps(group.scale[1]);
      const __m256 offset = _mm256_set1_ps(group.offset);
      auto store = [&](float* at, __m256 q, __m256 scale) KV_AVX2 {
        _mm256_storeu_ps(at, _mm256_add_ps(_mm256_mul_ps(q, scale), offset));
      };
      store(out, floats<0>(group.q), low);
      store(out + 8, floats<1>(group.q), low);
      store(out + 16, floats<2>(group.q), high);
      store(out + 24, floats<3>(group.q), high);
    }
  }
}

TypeKernels kernels_of(TensorType type) {
  return with_type(type, []<TensorType t>() {
    return TypeKernels{multiply_by_tiles<Avx2, t>, avx2_panel_kernel(t), widen<t>,
                       avx2_widen_panel(t)};
  });
}

// 8 rows of a line: the sums of their 4 columns times x (a group's columns 4 k …). At most
// 2 * 15 * 127 per 16-bit lane.
KV_AVX2_INLINE __m256i line_sums(__m256i codes, const int8_t* x) {
  int32_t four;
  std::memcpy(&four, x, 4);
  return _mm256_madd_epi16(_mm256_maddubs_epi16(codes, _mm256_set1_epi32(four)),
                           _mm256_set1_epi16(1));
}

KV_AVX2 float screen(const uint8_t* block, uint32_t groups, const ScreenInput& x, float* out) {
  const __m256i nibble = _mm256_set1_epi8(15);
  __m256 sums[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
  for (uint32_t g = 0; g < groups; ++g, block += kScreenGroupBytes) {
    prefetch_weights(block, kScreenGroupBytes);
    const int8_t* xg = x.codes.data() + size_t{g} * 32;
    const __m256 x_scale = _mm256_set1_ps(0.5f * x.scale[g]);
    const __m256i x_sum = _mm256_set1_epi32(x.codes_15[g]);
#pragma GCC unroll 2
    for (uint32_t half_line = 0; half_line < 2; ++half_line) {
      __m256i low = _mm256_setzero_si256(), high = low;
#pragma GCC unroll 4
      for (uint32_t k = 0; k < 4; ++k) {
        const __m256i both = load32(block + k * 64 + half_line * 32);
        low = _mm256_add_epi32(low, line_sums(_mm256_and_si256(both, nibble), xg + k * 4));
        high = _mm256_add_epi32(
            high, line_sums(_mm256_and_si256(_mm256_srli_epi16(both, 4), nibble), xg + 16 + k * 4));
      }
      const __m256i sum = _mm256_add_epi32(low, high);
      const __m256 scale =
          _mm256_mul_ps(_mm256_cvtph_ps(load16(block + 256 + half_line * 16)), x_scale);
      const __m256 value = _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_add_epi32(sum, sum), x_sum));
      sums[half_line] = _mm256_add_ps(sums[half_line], _mm256_mul_ps(value, scale));
    }
  }
  _mm256_storeu_ps(out, sums[0]);
  _mm256_storeu_ps(out + 8, sums[1]);
  __m256 most = _mm256_max_ps(sums[0], sums[1]);
  most = _mm256_max_ps(most, _mm256_permute2f128_ps(most, most, 1));
  most = _mm256_max_ps(most, _mm256_shuffle_ps(most, most, 0x4e));
  return _mm256_cvtss_f32(_mm256_max_ps(most, _mm256_shuffle_ps(most, most, 0xb1)));
}

KV_AVX2_INLINE __m256 magnitude(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }
KV_AVX2_INLINE float largest_lane(__m256 v) {
  __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  m = _mm_max_ps(m, _mm_movehl_ps(m, m));
  return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

KV_AVX2_INLINE int32_t integers_sum(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

// Codes of 8 columns as their two quads (rounded.h).
KV_AVX2_INLINE __m256i quads_of(__m256i codes) {
  const __m256i byte = _mm256_set1_epi32(255), half = _mm256_set1_epi32(128);
  const __m256i middle = _mm256_srai_epi32(_mm256_add_epi32(codes, half), 8);
  const __m256i high = _mm256_srai_epi32(_mm256_add_epi32(middle, half), 8);
  const __m256i all =
      _mm256_or_si256(_mm256_or_si256(_mm256_and_si256(high, byte),
                                      _mm256_slli_epi32(_mm256_and_si256(middle, byte), 8)),
                      _mm256_slli_epi32(_mm256_and_si256(codes, byte), 16));
  const __m256i even_odd =
      _mm256_permutevar8x32_epi32(all, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
  return _mm256_shuffle_epi8(even_odd, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                           0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)));
}

// round_row() of rounded.h.
KV_AVX2 void round_avx2(const float* x, uint32_t columns, int8_t* codes, float* scales,
                        float* sums) {
  const __m256 zero = _mm256_setzero_ps();
  for (uint32_t g = 0; g < columns / 32; ++g, x += 32, codes += rounded_bytes(32)) {
    __m256 v[4], most = zero, poison = zero;
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      v[k] = _mm256_loadu_ps(x + 8 * k);
      most = _mm256_max_ps(magnitude(v[k]), most);  // of a NaN: `most`
      poison = _mm256_fmadd_ps(v[k], zero, poison);
    }
    const float size = largest_lane(most), no_number = lanes_sum(poison);
    const bool counts = size >= kRoundedLeast && no_number == 0;
    const __m256 by = _mm256_set1_ps(counts ? kRoundedMost / size : 0.0f);
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) {
      const __m256i code =
          _mm256_cvtps_epi32(_mm256_mul_ps(counts ? v[k] : _mm256_setzero_ps(), by));
      sum = _mm256_add_epi32(sum, code);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(codes + 32 * k), quads_of(code));
    }
    scales[g] = (counts ? size / kRoundedMost : 0.0f) + no_number;
    sums[g] = static_cast<float>(integers_sum(sum)) * scales[g];
  }
}

}  // namespace

const EngineKernels* avx2_engine_kernels() {
  static constexpr EngineKernels kAvx2 = {
      "avx2", kernels_of, screen, round_avx2, avx2_band_product, avx2_transpose, avx2_to_floats};
  return avx2_kernels() == nullptr ? nullptr : &kAvx2;
}

}  // namespace kv
