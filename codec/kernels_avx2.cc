// The AVX2 + FMA + F16C kernels: the same bits as the scalar ones, in the same order of operations.
//
// Includes come first: everything after the pragma is compiled for AVX2 and must only run after
// avx2_kernels() has asked the machine. Vector names say what a register holds; "lane" is one of
// its 8 floats. Pure functions, any thread.
#include "codec/kernels_avx2.h"

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "codec/float16.h"
#include "codec/kernels.h"
#include "codec/packing.h"
#include "codec/turboquant.h"
#include "codec/vector_scale.h"

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
  for (size_t i = 0; i < n; i += 8) {
    __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(mean + i));
    _mm256_storeu_ps(x + i, _mm256_mul_ps(d, _mm256_loadu_ps(gain + i)));
  }
}

void uncenter(float* x, const float* mean, const float* inverse_gain, size_t n) {
  for (size_t i = 0; i < n; i += 8) {
    __m256 p = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_loadu_ps(inverse_gain + i));
    _mm256_storeu_ps(x + i, _mm256_add_ps(p, _mm256_loadu_ps(mean + i)));
  }
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

// All strides within `n` registers (n = 4 or 8).
template <int n>
KV_INLINE void hadamard_registers(__m256* v) {
  for (int i = 0; i < n; ++i) v[i] = hadamard8(v[i]);
  for (int i = 0; i < n; i += 2) butterfly(v[i], v[i + 1]);
  for (int i = 0; i < n; i += 4) {
    butterfly(v[i], v[i + 2]);
    butterfly(v[i + 1], v[i + 3]);
  }
  if constexpr (n == 8) {
    for (int i = 0; i < 4; ++i) butterfly(v[i], v[i + 4]);
  }
}

// Strides of 64 and more, over memory.
KV_INLINE void hadamard_memory(float* x, uint32_t dim) {
  for (uint32_t stride = 64; stride < dim; stride *= 2) {
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

// x = H (signs * x): signs null stands for ones.
template <uint32_t dim>
KV_INLINE void signed_hadamard(float* x, const float* signs) {
  constexpr int n = dim >= 64 ? 8 : 4;
  for (uint32_t block = 0; block < dim; block += 8 * n) {
    __m256 v[n];
    for (int i = 0; i < n; ++i) {
      v[i] = _mm256_loadu_ps(x + block + 8 * i);
      if (signs != nullptr) v[i] = _mm256_mul_ps(v[i], _mm256_loadu_ps(signs + block + 8 * i));
    }
    hadamard_registers<n>(v);
    for (int i = 0; i < n; ++i) _mm256_storeu_ps(x + block + 8 * i, v[i]);
  }
  hadamard_memory(x, dim);
}

void rotate(float* x, uint32_t dim, const float* signs) {
  switch (dim) {
    case 32:
      return signed_hadamard<32>(x, signs);
    case 64:
      return signed_hadamard<64>(x, signs);
    case 128:
      return signed_hadamard<128>(x, signs);
    default:
      return signed_hadamard<256>(x, signs);
  }
}

void unrotate(float* x, uint32_t dim, const float* signs) {
  rotate(x, dim, nullptr);
  for (uint32_t j = 0; j < dim; j += 8) {
    _mm256_storeu_ps(x + j, _mm256_mul_ps(_mm256_loadu_ps(x + j), _mm256_loadu_ps(signs + j)));
  }
}

template <uint32_t dim>
KV_INLINE void decode_dim(const int16_t* values, const float* signs, float factor, float* out) {
  constexpr int n = dim >= 64 ? 8 : 4;
  for (uint32_t block = 0; block < dim; block += 8 * n) {
    __m256 v[n];
    for (int i = 0; i < n; ++i) {
      v[i] = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(load_half(values + block + 8 * i)));
    }
    hadamard_registers<n>(v);
    for (int i = 0; i < n; ++i) _mm256_storeu_ps(out + block + 8 * i, v[i]);
  }
  hadamard_memory(out, dim);
  const __m256 f = _mm256_set1_ps(factor);
  for (uint32_t j = 0; j < dim; j += 8) {
    __m256 signed_factor = _mm256_mul_ps(_mm256_loadu_ps(signs + j), f);
    _mm256_storeu_ps(out + j, _mm256_mul_ps(_mm256_loadu_ps(out + j), signed_factor));
  }
}

void decode(const int16_t* values, uint32_t dim, const float* signs, float factor, float* out) {
  switch (dim) {
    case 32:
      return decode_dim<32>(values, signs, factor, out);
    case 64:
      return decode_dim<64>(values, signs, factor, out);
    case 128:
      return decode_dim<128>(values, signs, factor, out);
    default:
      return decode_dim<256>(values, signs, factor, out);
  }
}

// ---- encode

template <uint32_t dim>
KV_INLINE float square_norm(const float* x) {
  __m256 lanes[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
  for (uint32_t j = 0; j < dim; j += 32) {
    for (int i = 0; i < 4; ++i) {
      __m256 v = _mm256_loadu_ps(x + j + 8 * i);
      lanes[i] = _mm256_fmadd_ps(v, v, lanes[i]);
    }
  }
  return sum_register(
      _mm256_add_ps(_mm256_add_ps(lanes[0], lanes[1]), _mm256_add_ps(lanes[2], lanes[3])));
}

// 16 values on the grid, saturated, in the order that packs gives: 0-3, 8-11, 4-7, 12-15.
KV_INLINE __m256i grid16(const float* z, __m256 to_grid) {
  __m256i a = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(z), to_grid));
  __m256i b = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(z + 8), to_grid));
  return _mm256_max_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(-kGridMax));
}

// Cell numbers of 16 grid values.
template <uint8_t bits>
KV_INLINE __m256i cells16(__m256i grid) {
  constexpr const HalfCodebook& book = half_codebook(bits);
  __m256i magnitude = _mm256_abs_epi16(grid), cell = _mm256_setzero_si256();
  for (int k = 0; k + 1 < book.cells; ++k) {
    cell =
        _mm256_sub_epi16(cell, _mm256_cmpgt_epi16(magnitude, _mm256_set1_epi16(book.threshold[k])));
  }
  return cell;
}

// A table of 16 bytes, in both halves of a register.
struct ByteTable {
  alignas(16) uint8_t bytes[16];
  KV_INLINE __m256i load_both() const {
    return _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(bytes)));
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

// Indices of `dim` rotated values; returns the sum of their squared centroids.
template <uint32_t dim, uint8_t bits>
KV_INLINE uint32_t quantize(const float* z, float norm, uint8_t* index) {
  static constexpr ByteTable kLow = square_table<bits>(0), kHigh = square_table<bits>(8);
  const __m256i low = kLow.load_both(), high = kHigh.load_both();
  const __m256 to_grid = _mm256_set1_ps(kGrid / norm);
  const __m256i half = _mm256_set1_epi8(1 << (bits - 1)), all = _mm256_set1_epi8((1 << bits) - 1);
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), zero = _mm256_setzero_si256();
  __m256i low_sum = zero, high_sum = zero;
  for (uint32_t j = 0; j < dim; j += 32) {
    __m256i g0 = grid16(z + j, to_grid), g1 = grid16(z + j + 16, to_grid);
    __m256i cell = _mm256_packus_epi16(cells16<bits>(g0), cells16<bits>(g1));
    low_sum = _mm256_add_epi64(low_sum, _mm256_sad_epu8(_mm256_shuffle_epi8(low, cell), zero));
    high_sum = _mm256_add_epi64(high_sum, _mm256_sad_epu8(_mm256_shuffle_epi8(high, cell), zero));
    __m256i negative = _mm256_packs_epi16(_mm256_srai_epi16(g0, 15), _mm256_srai_epi16(g1, 15));
    __m256i value = _mm256_xor_si256(_mm256_or_si256(cell, half), _mm256_and_si256(negative, all));
    store(index + j, _mm256_permutevar8x32_epi32(value, order));
  }
  __m256i sum = _mm256_add_epi64(low_sum, _mm256_slli_epi64(high_sum, 8));
  __m128i s = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1));
  s = _mm_add_epi64(s, _mm_unpackhi_epi64(s, s));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(s));
}

template <uint32_t dim>
KV_INLINE VectorState encode_int8(const float* z, uint8_t* codes, uint16_t* scale) {
  const float sqrt_dim = std::sqrt(static_cast<float>(dim));
  const __m256 magnitude_mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  __m256 largest = _mm256_setzero_ps();
  for (uint32_t j = 0; j < dim; j += 8) {
    largest = _mm256_max_ps(largest, _mm256_and_ps(magnitude_mask, _mm256_loadu_ps(z + j)));
  }
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, largest);
  float absmax = 0;
  for (float lane : lanes) absmax = lane > absmax ? lane : absmax;
  *scale = int8_scale(absmax, sqrt_dim);
  if (!scale_fits(*scale)) return VectorState::scale_overflow;
  if (*scale == 0) {
    std::memset(codes, 0, dim);
    return VectorState::ok;
  }
  const __m256 to_code = _mm256_set1_ps(1.0f / (half_to_float(*scale) * sqrt_dim));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  for (uint32_t j = 0; j < dim; j += 32) {
    __m256i g[4];
    for (int i = 0; i < 4; ++i) {
      g[i] = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(z + j + 8 * i), to_code));
    }
    __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(g[0], g[1]), _mm256_packs_epi32(g[2], g[3]));
    packed = _mm256_max_epi8(packed, _mm256_set1_epi8(-127));
    store(codes + j, _mm256_permutevar8x32_epi32(packed, order));
  }
  return VectorState::ok;
}

template <uint32_t dim>
KV_INLINE VectorState encode_dim(float* x, const float* signs, uint8_t bits, uint8_t* codes,
                                 uint16_t* scale) {
  const float square = square_norm<dim>(x);
  if (!std::isfinite(square)) return classify(x, dim);
  const float norm = std::sqrt(square);
  *scale = 0;
  if (norm < kNormMin) {
    std::memset(codes, 0, size_t{dim} * bits / 8);
    return VectorState::ok;
  }
  signed_hadamard<dim>(x, signs);
  if (bits == 8) return encode_int8<dim>(x, codes, scale);
  alignas(32) uint8_t index[dim];
  uint32_t square_sum = bits == 4   ? quantize<dim, 4>(x, norm, index)
                        : bits == 3 ? quantize<dim, 3>(x, norm, index)
                                    : quantize<dim, 2>(x, norm, index);
  *scale = corrected_scale(norm, square_sum);
  if (!scale_fits(*scale)) return VectorState::scale_overflow;
  if (*scale == 0) {
    std::memset(codes, 0, size_t{dim} * bits / 8);
  } else {
    pack_indices(index, dim, bits, codes);
  }
  return VectorState::ok;
}

VectorState encode(float* x, uint32_t dim, const float* signs, uint8_t bits, uint8_t* codes,
                   uint16_t* scale) {
  switch (dim) {
    case 32:
      return encode_dim<32>(x, signs, bits, codes, scale);
    case 64:
      return encode_dim<64>(x, signs, bits, codes, scale);
    case 128:
      return encode_dim<128>(x, signs, bits, codes, scale);
    default:
      return encode_dim<256>(x, signs, bits, codes, scale);
  }
}

// ---- unpack

template <uint8_t bits>
constexpr ByteTable value_table(int shift) {
  ByteTable t{};
  for (uint32_t i = 0; i < 1u << bits; ++i) {
    t.bytes[i] = static_cast<uint8_t>(static_cast<uint16_t>(code_value(bits, i)) >> shift);
  }
  return t;
}

struct ValueTables {
  __m256i low, high;
};

// 32 indices in order → 32 code values.
KV_INLINE void look_up(const ValueTables& t, __m256i index, int16_t* out) {
  index = _mm256_permute4x64_epi64(index, 0xD8);  // so that the unpacks give 0-15 and 16-31
  __m256i low = _mm256_shuffle_epi8(t.low, index), high = _mm256_shuffle_epi8(t.high, index);
  store(out, _mm256_unpacklo_epi8(low, high));
  store(out + 16, _mm256_unpackhi_epi8(low, high));
}

template <uint32_t dim>
KV_INLINE void unpack4(const uint8_t* codes, const ValueTables& t, int16_t* out) {
  const __m256i nibble = _mm256_set1_epi8(15);
  if constexpr (dim == 32) {
    __m128i c = load_half(codes);
    __m256i both = _mm256_set_m128i(_mm_srli_epi16(c, 4), c);
    look_up(t, _mm256_and_si256(both, nibble), out);
  } else {
    for (uint32_t j = 0; j < dim / 2; j += 32) {
      __m256i c = load(codes + j);
      look_up(t, _mm256_and_si256(c, nibble), out + j);
      look_up(t, _mm256_and_si256(_mm256_srli_epi16(c, 4), nibble), out + dim / 2 + j);
    }
  }
}

// The low two bits of dims 32 r … 32 r + 31, one per byte.
template <uint32_t dim>
KV_INLINE __m256i two_bits(const uint8_t* codes, uint32_t r) {
  const __m256i mask = _mm256_set1_epi8(3);
  const int shift = static_cast<int>(2 * (32 * r / (dim / 4)));  // of the first dim
  if constexpr (dim >= 128) {
    __m256i c = load(codes + 32 * r % (dim / 4));
    return _mm256_and_si256(_mm256_srl_epi16(c, _mm_cvtsi32_si128(shift)), mask);
  } else if constexpr (dim == 64) {
    __m256i c = _mm256_broadcastsi128_si256(load_half(codes));
    const int next = shift + 2;
    __m256i shifts = _mm256_setr_epi32(shift, shift, shift, shift, next, next, next, next);
    return _mm256_and_si256(_mm256_srlv_epi32(c, shifts), mask);
  } else {
    int64_t word;
    std::memcpy(&word, codes, 8);
    __m256i shifts = _mm256_setr_epi64x(0, 2, 4, 6);
    return _mm256_and_si256(_mm256_srlv_epi64(_mm256_set1_epi64x(word), shifts), mask);
  }
}

// Bit 2 of dims 32 r … 32 r + 31 at its place, from the third plane.
template <uint32_t dim>
KV_INLINE __m256i third_bit(const uint8_t* plane, uint32_t r) {
  const int bit = static_cast<int>(32 * r / (dim / 8));  // bit of the first dim
  __m256i bytes, mask;
  if constexpr (dim == 256) {
    bytes = load(plane);
    mask = _mm256_set1_epi8(static_cast<char>(1 << bit));
  } else if constexpr (dim == 128) {
    bytes = _mm256_broadcastsi128_si256(load_half(plane));
    mask = _mm256_set_m128i(_mm_set1_epi8(static_cast<char>(2 << bit)),
                            _mm_set1_epi8(static_cast<char>(1 << bit)));
  } else if constexpr (dim == 64) {
    int64_t word;
    std::memcpy(&word, plane, 8);
    bytes = _mm256_set1_epi64x(word);
    const int64_t one = int64_t{0x0101010101010101} << bit;
    mask = _mm256_setr_epi64x(one, one << 1, one << 2, one << 3);
  } else {
    int32_t word;
    std::memcpy(&word, plane, 4);
    bytes = _mm256_set1_epi32(word);
    mask =
        _mm256_sllv_epi32(_mm256_set1_epi32(0x01010101), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, mask), mask);
  return _mm256_and_si256(set, _mm256_set1_epi8(4));
}

template <uint32_t dim, uint8_t bits>
KV_INLINE void unpack_rows(const uint8_t* codes, size_t rows, int16_t* out) {
  constexpr size_t kBytes = dim * bits / 8;
  if constexpr (bits == 8) {
    for (size_t i = 0; i < rows * dim; i += 16) {
      store(out + i, _mm256_cvtepi8_epi16(load_half(codes + i)));
    }
  } else {
    static constexpr ByteTable kLow = value_table<bits>(0), kHigh = value_table<bits>(8);
    const ValueTables tables{kLow.load_both(), kHigh.load_both()};
    for (size_t row = 0; row < rows; ++row, codes += kBytes, out += dim) {
      // A head's rows are one stream, read tile by tile with other work in between.
      _mm_prefetch(reinterpret_cast<const char*>(codes) + 2 * kTileRows * kBytes, _MM_HINT_T0);
      if constexpr (bits == 4) {
        unpack4<dim>(codes, tables, out);
      } else {
        for (uint32_t r = 0; r < dim / 32; ++r) {
          __m256i index = two_bits<dim>(codes, r);
          if constexpr (bits == 3) {
            index = _mm256_or_si256(index, third_bit<dim>(codes + dim / 4, r));
          }
          look_up(tables, index, out + 32 * r);
        }
      }
    }
  }
}

template <uint32_t dim>
KV_INLINE void unpack_dim(const uint8_t* codes, size_t rows, uint8_t bits, int16_t* out) {
  switch (bits) {
    case 2:
      return unpack_rows<dim, 2>(codes, rows, out);
    case 3:
      return unpack_rows<dim, 3>(codes, rows, out);
    case 4:
      return unpack_rows<dim, 4>(codes, rows, out);
    default:
      return unpack_rows<dim, 8>(codes, rows, out);
  }
}

void unpack(const uint8_t* codes, size_t rows, uint32_t dim, uint8_t bits, int16_t* out) {
  switch (dim) {
    case 32:
      return unpack_dim<32>(codes, rows, bits, out);
    case 64:
      return unpack_dim<64>(codes, rows, bits, out);
    case 128:
      return unpack_dim<128>(codes, rows, bits, out);
    default:
      return unpack_dim<256>(codes, rows, bits, out);
  }
}

constexpr Kernels kAvx2 = {"avx2",    f16_to_f32,  bf16_to_f32,     f32_to_f16, f32_to_bf16, center,
                           uncenter,  rotate,      unrotate,        encode,     unpack,      decode,
                           dot_codes, score_codes, dot_exact,       add_codes,  add_exact,   merge,
                           largest,   exp_weights, quantize_weights};

}  // namespace
}  // namespace kv

#pragma GCC pop_options

namespace kv {

const Kernels* avx2_kernels() {
  static const bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                                __builtin_cpu_supports("f16c");
  return supported ? &kAvx2 : nullptr;
}

}  // namespace kv
