// The AVX2 + FMA + F16C kernels: the same bits as the scalar ones, in the same order of operations.
//
// Includes come first: everything after the pragma is compiled for AVX2 and must only run after
// avx2_kernels() has asked the machine. Vector names say what a register holds; "lane" is one of
// its 8 floats. Pure functions, any thread.
#include "codec/kernels_avx2.h"

#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "codec/float16.h"
#include "codec/kernels.h"
#include "codec/packing.h"
#include "codec/turboquant.h"
#include "codec/vector_scale.h"
#include "proto/plane.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace kv {
namespace {

using namespace avx2;

// ---- conversions

void f16_to_f32(const uint8_t* in, float* out, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(load_half(in + 2 * i)));
  for (; i < n; ++i) out[i] = half_to_float(read_half(in + 2 * i));
}

void bf16_to_f32(const uint8_t* in, float* out, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    store(out + i, _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(in + 2 * i)), 16));
  }
  for (; i < n; ++i) out[i] = bf16_to_float(read_half(in + 2 * i));
}

void f32_to_f16(const float* in, uint8_t* out, size_t n) {
  const __m256 high = _mm256_set1_ps(kHalfMax), low = _mm256_set1_ps(-kHalfMax);
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 x = _mm256_max_ps(low, _mm256_min_ps(high, _mm256_loadu_ps(in + i)));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) {
    uint16_t h = float_to_half(in[i] > kHalfMax ? kHalfMax : in[i] < -kHalfMax ? -kHalfMax : in[i]);
    std::memcpy(out + 2 * i, &h, 2);
  }
}

void f32_to_bf16(const float* in, uint8_t* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    uint16_t b = float_to_bf16(in[i]);
    std::memcpy(out + 2 * i, &b, 2);
  }
}

void center(float* x, const float* mean, const float* gain, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(mean + i));
    _mm256_storeu_ps(x + i, _mm256_mul_ps(d, _mm256_loadu_ps(gain + i)));
  }
  for (; i < n; ++i) x[i] = (x[i] - mean[i]) * gain[i];
}

void uncenter(float* x, const float* mean, const float* inverse_gain, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    __m256 p = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(inverse_gain + i));
    _mm256_storeu_ps(x + i, _mm256_add_ps(p, _mm256_loadu_ps(mean + i)));
  }
  for (; i < n; ++i) x[i] = x[i] * inverse_gain[i] + mean[i];
}

// ---- rotation

// Strides 1, 2, 4 within one register: partner + (+-1) * self rounds as a + b and a - b do.
KV_INLINE __m256 hadamard8(__m256 v) {
  const __m256 s1 = _mm256_setr_ps(1, -1, 1, -1, 1, -1, 1, -1);
  const __m256 s2 = _mm256_setr_ps(1, 1, -1, -1, 1, 1, -1, -1);
  const __m256 s4 = _mm256_setr_ps(1, 1, 1, 1, -1, -1, -1, -1);
  v = _mm256_fmadd_ps(v, s1, _mm256_permute_ps(v, 0xB1));
  v = _mm256_fmadd_ps(v, s2, _mm256_permute_ps(v, 0x4E));
  return _mm256_fmadd_ps(v, s4, _mm256_permute2f128_ps(v, v, 0x01));
}

KV_INLINE void butterfly(__m256& a, __m256& b) {
  __m256 sum = _mm256_add_ps(a, b);
  b = _mm256_sub_ps(a, b);
  a = sum;
}

// All strides within `n` registers (1, 2, 4 or 8).
template <int n>
KV_INLINE void hadamard_registers(__m256* v) {
  for (int i = 0; i < n; ++i) v[i] = hadamard8(v[i]);
  if constexpr (n >= 2) {
    for (int i = 0; i < n; i += 2) butterfly(v[i], v[i + 1]);
  }
  if constexpr (n >= 4) {
    for (int i = 0; i < n; i += 4) {
      butterfly(v[i], v[i + 2]);
      butterfly(v[i + 1], v[i + 3]);
    }
  }
  if constexpr (n == 8) {
    for (int i = 0; i < 4; ++i) butterfly(v[i], v[i + 4]);
  }
}

// Butterflies of `first_stride` and more, over memory.
KV_INLINE void butterflies(float* x, uint32_t dim, uint32_t first_stride) {
  for (uint32_t stride = first_stride; stride < dim; stride *= 2) {
    for (uint32_t block = 0; block < dim; block += 2 * stride) {
      for (uint32_t j = block; j < block + stride; j += 8) {
        __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + stride);
        butterfly(a, b);
        _mm256_storeu_ps(x + j, a);
        _mm256_storeu_ps(x + j + stride, b);
      }
    }
  }
}

// x = H load(j): the Walsh-Hadamard part of the rotation, `n` registers of one stripe number at a
// time. `load(j)` gives values j … j + 7.
template <int n, typename Load>
KV_INLINE void hadamard(float* x, uint32_t dim, uint32_t odd, Load load) {
  for (uint32_t block = 0; block < dim; block += 8 * n * odd) {
    for (uint32_t first = block; first < block + 8 * odd; first += 8) {
      __m256 v[n];
      for (int i = 0; i < n; ++i) v[i] = load(first + static_cast<uint32_t>(i) * 8 * odd);
      hadamard_registers<n>(v);
      for (int i = 0; i < n; ++i) {
        _mm256_storeu_ps(x + first + static_cast<uint32_t>(i) * 8 * odd, v[i]);
      }
    }
  }
  butterflies(x, dim, 8 * n * odd);
}

KV_INLINE void mix_odd_factor(float* x, uint32_t dim, uint32_t p, uint32_t stride) {
  const __m256 factor = _mm256_set1_ps(static_cast<float>(p));
  for (uint32_t block = 0; block < dim; block += p * stride) {
    for (uint32_t j = block; j < block + stride; j += 8) {
      __m256 sum = _mm256_loadu_ps(x + j);
      for (uint32_t i = 1; i < p; ++i) {
        sum = _mm256_add_ps(sum, _mm256_loadu_ps(x + j + i * stride));
      }
      const __m256 twice = _mm256_add_ps(sum, sum);
      for (uint32_t i = 0; i < p; ++i) {
        float* at = x + j + i * stride;
        _mm256_storeu_ps(at, _mm256_fmsub_ps(_mm256_loadu_ps(at), factor, twice));
      }
    }
  }
}

// x = M load(j), M as the scalar kernels' transform. A constant dim unrolls into registers.
template <typename Load>
KV_INLINE void transform(float* x, uint32_t dim, Load load) {
  const RotationShape shape = rotation_shape(dim);
  const uint32_t stripes = dim / (8 * shape.odd);
  if (stripes >= 8) {
    hadamard<8>(x, dim, shape.odd, load);
  } else if (stripes == 4) {
    hadamard<4>(x, dim, shape.odd, load);
  } else if (stripes == 2) {
    hadamard<2>(x, dim, shape.odd, load);
  } else {
    hadamard<1>(x, dim, shape.odd, load);
  }
  for_each_odd_factor(shape,
                      [&](uint32_t p, uint32_t stride) { mix_odd_factor(x, dim, p, stride); });
}

// Calls f with dim, as a constant for the common lengths.
template <typename F>
KV_INLINE auto with_dim(uint32_t dim, F f) {
  switch (dim) {
    case 32:
      return f(std::integral_constant<uint32_t, 32>());
    case 64:
      return f(std::integral_constant<uint32_t, 64>());
    case 128:
      return f(std::integral_constant<uint32_t, 128>());
    case 256:
      return f(std::integral_constant<uint32_t, 256>());
    default:
      return f(dim);
  }
}

KV_INLINE void signed_transform(float* x, uint32_t dim, const float* signs) {
  transform(x, dim, [=](uint32_t j) {
    return _mm256_mul_ps(_mm256_loadu_ps(x + j), _mm256_loadu_ps(signs + j));
  });
}

void rotate(float* x, uint32_t dim, const float* signs) {
  if (dim % 8 != 0) return scalar_kernels().rotate(x, dim, signs);
  with_dim(dim, [=](auto d) { signed_transform(x, d, signs); });
}

void unrotate(float* x, uint32_t dim, const float* signs) {
  if (dim % 8 != 0) return scalar_kernels().unrotate(x, dim, signs);
  with_dim(dim, [=](auto d) {
    transform(x, d, [=](uint32_t j) { return _mm256_loadu_ps(x + j); });
    for (uint32_t j = 0; j < d; j += 8) {
      _mm256_storeu_ps(x + j, _mm256_mul_ps(_mm256_loadu_ps(x + j), _mm256_loadu_ps(signs + j)));
    }
  });
}

void decode(const int16_t* values, uint32_t dim, const float* signs, float factor, float* out) {
  if (dim % 8 != 0) return scalar_kernels().decode(values, dim, signs, factor, out);
  with_dim(dim, [=](auto d) {
    transform(out, d, [=](uint32_t j) {
      return _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(load_half(values + j)));
    });
    const __m256 f = _mm256_set1_ps(factor);
    for (uint32_t j = 0; j < d; j += 8) {
      __m256 signed_factor = _mm256_mul_ps(_mm256_loadu_ps(signs + j), f);
      _mm256_storeu_ps(out + j, _mm256_mul_ps(_mm256_loadu_ps(out + j), signed_factor));
    }
  });
}

// ---- encode

KV_INLINE float square_norm(const float* x, uint32_t dim) {
  __m256 lanes[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
  auto add = [&lanes](const float* at, uint32_t i) {
    __m256 v = _mm256_loadu_ps(at);
    lanes[i] = _mm256_fmadd_ps(v, v, lanes[i]);
  };
  uint32_t j = 0;
  for (; j + 32 <= dim; j += 32) {
    for (uint32_t i = 0; i < 4; ++i) add(x + j + 8 * i, i);
  }
  for (uint32_t i = 0; j + 8 * i < dim; ++i) add(x + j + 8 * i, i);
  return sum_register(
      _mm256_add_ps(_mm256_add_ps(lanes[0], lanes[1]), _mm256_add_ps(lanes[2], lanes[3])));
}

// 16 values on the grid, saturated, in the order that packs gives: 0-3, 8-11, 4-7, 12-15.
KV_INLINE __m256i grid16(const float* z, __m256 to_grid) {
  __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(z), to_grid));
  __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(z + 8), to_grid));
  return _mm256_max_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(-kGridMax));
}

// Low or high bytes of the cells' steps: those of the upper half of indices, from cell 0 on.
template <uint8_t bits>
constexpr ByteTable step_table(int shift) {
  ByteTable t{};
  for (uint32_t i = 0; i < 16; ++i) {
    const uint32_t cell_0 = static_cast<uint32_t>(half_codebook(bits).cells) << kStepBits;
    t.bytes[i] =
        static_cast<uint8_t>(static_cast<uint16_t>(index_steps(bits)[i] - cell_0) >> shift);
  }
  return t;
}

// Cell numbers of 16 grid values. A bucket's number stands in the low byte of its word, and the
// high one looks up the tables' first entries, which are 0.
struct Cells {
  __m256i low, high;
  KV_INLINE __m256i of(__m256i grid) const {
    const __m256i magnitude = _mm256_abs_epi16(grid);
    const __m256i bucket = _mm256_srli_epi16(magnitude, kStepBits);
    const __m256i above = _mm256_slli_epi16(_mm256_shuffle_epi8(high, bucket), 8);
    const __m256i step = _mm256_or_si256(_mm256_shuffle_epi8(low, bucket), above);
    return _mm256_srli_epi16(_mm256_add_epi16(magnitude, step), kStepBits);
  }
};

template <uint8_t bits>
constexpr ByteTable square_table(int shift) {
  ByteTable t{};
  for (int i = 0; i < half_codebook(bits).cells; ++i) {
    t.bytes[i] = static_cast<uint8_t>(half_codebook(bits).square[i] >> shift);
  }
  return t;
}

// Calls step(values, j) for each 32 values from j; the last may be a copy that ends in zeros.
template <typename Step>
KV_INLINE void for_each_32(const float* z, uint32_t dim, Step step) {
  uint32_t j = 0;
  for (; j + 32 <= dim; j += 32) step(z + j, j);
  if (j == dim) return;
  alignas(32) float rest[32] = {};
  std::memcpy(rest, z + j, (dim - j) * sizeof(float));
  step(rest, j);
}
constexpr uint32_t round_up32(uint32_t n) { return (n + 31) / 32 * 32; }

// Indices of `dim` rotated values, and some more up to a multiple of 32; returns the sum of their
// squared centroids.
template <uint8_t bits>
KV_INLINE uint32_t quantize(const float* z, uint32_t dim, float norm, uint8_t* index) {
  static constexpr ByteTable kLow = square_table<bits>(0), kHigh = square_table<bits>(8);
  static constexpr ByteTable kLowStep = step_table<bits>(0), kHighStep = step_table<bits>(8);
  static_assert(kLowStep.bytes[0] == 0 && kHighStep.bytes[0] == 0);
  const Cells cells{kLowStep.load_both(), kHighStep.load_both()};
  const __m256i low = kLow.load_both(), high = kHigh.load_both();
  const __m256 to_grid = _mm256_set1_ps(kGrid / (norm * rotation_spread(dim)));
  const __m256i half = _mm256_set1_epi8(1 << (bits - 1)), all = _mm256_set1_epi8((1 << bits) - 1);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), zero = _mm256_setzero_si256();
  __m256i low_sum = zero, high_sum = zero;
  for_each_32(z, dim, [&](const float* values, uint32_t j) KV_LAMBDA_INLINE {
    __m256i g0 = grid16(values, to_grid), g1 = grid16(values + 16, to_grid);
    __m256i cell = _mm256_packus_epi16(cells.of(g0), cells.of(g1));
    low_sum = _mm256_add_epi64(low_sum, _mm256_sad_epu8(_mm256_shuffle_epi8(low, cell), zero));
    high_sum = _mm256_add_epi64(high_sum, _mm256_sad_epu8(_mm256_shuffle_epi8(high, cell), zero));
    __m256i negative = _mm256_packs_epi16(_mm256_srai_epi16(g0, 15), _mm256_srai_epi16(g1, 15));
    __m256i value = _mm256_xor_si256(_mm256_or_si256(cell, half), _mm256_and_si256(negative, all));
    store(index + j, _mm256_permutevar8x32_epi32(value, order));
  });
  __m256i sum = _mm256_add_epi64(low_sum, _mm256_slli_epi64(high_sum, 8));
  __m128i s = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  s = _mm_add_epi64(s, _mm_unpackhi_epi64(s, s));
  const uint32_t padding = round_up32(dim) - dim;  // zeros: in the innermost cell
  return static_cast<uint32_t>(_mm_cvtsi128_si32(s)) - padding * half_codebook(bits).square[0];
}

KV_INLINE VectorState encode_int8(const float* z, uint32_t dim, uint8_t* codes, uint16_t* scale) {
  const float length = rotation_norm(dim);
  const __m256 magnitude_mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256 largest = _mm256_setzero_ps();
  for (uint32_t j = 0; j < dim; j += 8) {
    largest = _mm256_max_ps(largest, _mm256_and_ps(magnitude_mask, _mm256_loadu_ps(z + j)));
  }
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, largest);
  float absmax = 0;
  for (float lane : lanes) absmax = lane > absmax ? lane : absmax;
  *scale = int8_scale(absmax, length);
  if (!scale_fits(*scale)) return VectorState::scale_overflow;
  if (*scale == 0) {
    std::memset(codes, 0, dim);
    return VectorState::ok;
  }
  const __m256 to_code = _mm256_set1_ps(1.0f / (half_to_float(*scale) * length));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for_each_32(z, dim, [&](const float* values, uint32_t j) KV_LAMBDA_INLINE {
    __m256i g[4];
    for (int i = 0; i < 4; ++i) {
      g[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(values + 8 * i), to_code));
    }
    __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(g[0], g[1]), _mm256_packs_epi32(g[2], g[3]));
    packed = _mm256_max_epi8(packed, _mm256_set1_epi8(-127));
    packed = _mm256_permutevar8x32_epi32(packed, order);
    if (j + 32 <= dim) return store(codes + j, packed);
    alignas(32) uint8_t rest[32];
    store(rest, packed);
    std::memcpy(codes + j, rest, dim - j);
  });
  return VectorState::ok;
}

KV_INLINE VectorState encode_dim(float* x, uint32_t dim, const float* signs, uint8_t bits,
                                 uint8_t* codes, uint16_t* scale) {
  const float square = square_norm(x, dim);
  if (!std::isfinite(square)) return classify(x, dim);
  const float norm = std::sqrt(square);
  *scale = 0;
  if (norm < kNormMin) {
    std::memset(codes, 0, code_bytes(dim, bits));
    return VectorState::ok;
  }
  signed_transform(x, dim, signs);
  if (bits == 8) return encode_int8(x, dim, codes, scale);
  alignas(32) uint8_t index[kMaxCodedDim + 32];
  uint32_t square_sum = bits == 4   ? quantize<4>(x, dim, norm, index)
                        : bits == 3 ? quantize<3>(x, dim, norm, index)
                        : bits == 2 ? quantize<2>(x, dim, norm, index)
                                    : quantize<1>(x, dim, norm, index);
  *scale = corrected_scale(norm, square_sum);
  if (!scale_fits(*scale)) return VectorState::scale_overflow;
  if (*scale == 0) {
    std::memset(codes, 0, code_bytes(dim, bits));
  } else {
    pack_indices(index, dim, bits, codes);
  }
  return VectorState::ok;
}

VectorState encode(float* x, uint32_t dim, const float* signs, uint8_t bits, uint8_t* codes,
                   uint16_t* scale) {
  if (dim % 8 != 0) return scalar_kernels().encode(x, dim, signs, bits, codes, scale);
  return with_dim(dim, [=](auto d) { return encode_dim(x, d, signs, bits, codes, scale); });
}

constexpr Kernels kAvx2 = {"avx2",      f16_to_f32,      bf16_to_f32, f32_to_f16, f32_to_bf16,
                           center,      uncenter,        rotate,      unrotate,   encode,
                           unpack,      decode,          order_query, dot_codes,  score_codes,
                           dot_exact,   add_codes,       add_exact,   merge,      largest,
                           exp_weights, quantize_weights};

}  // namespace
}  // namespace kv

#pragma GCC pop_options

namespace kv {

const Kernels* avx2_kernels() {
  // cpuid's leaf 1 for F16C: clang 14 doesn't know it by name. Who has AVX2 has the leaf.
  static const bool supported = [] {
    unsigned a = 0, b = 0, features = 0, d = 0;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __get_cpuid(1, &a, &b, &features, &d) && (features & bit_F16C) != 0;
  }();
  return supported ? &kAvx2 : nullptr;
}

}  // namespace kv
