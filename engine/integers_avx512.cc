// AVX-512 VNNI kernels of integer products: 16 weight rows at a time, a lane of a register for each
// row, so that no sum runs across lanes.
//
// Packed words of 16 rows are transposed as they are read: register i has word i of every row. Its
// halves hold the weights of two columns each, which one instruction multiplies with two
// activations and adds. Only functions marked KV_VNNI may run these instructions. See integers.h.
#include <immintrin.h>

#include <cstring>

#include "engine/integers.h"
#include "engine/kernel_tiles.h"

#define KV_VNNI \
  __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define KV_VNNI_INLINE KV_VNNI __attribute__((always_inline)) inline

namespace kv {
namespace {

constexpr uint32_t kTileRows = 16;

// 16 bytes at `p` of rows r, r + 4, r + 8 and r + 12 of a tile.
KV_VNNI_INLINE __m512i four_rows(const uint8_t* p, uint64_t stride) {
  auto at = [p, stride](uint32_t r) KV_VNNI {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + r * stride));
  };
  __m512i v = _mm512_castsi128_si512(at(0));
  v = _mm512_inserti32x4(v, at(4), 1);
  v = _mm512_inserti32x4(v, at(8), 2);
  return _mm512_inserti32x4(v, at(12), 3);
}

// words[i]: the i-th 32-bit word at `p` of each row.
KV_VNNI_INLINE void read_words(const uint8_t* p, uint64_t stride, __m512i* words) {
  const __m512i a = four_rows(p, stride), b = four_rows(p + stride, stride);
  const __m512i c = four_rows(p + 2 * stride, stride), d = four_rows(p + 3 * stride, stride);
  const __m512i low_ab = _mm512_unpacklo_epi32(a, b), high_ab = _mm512_unpackhi_epi32(a, b);
  const __m512i low_cd = _mm512_unpacklo_epi32(c, d), high_cd = _mm512_unpackhi_epi32(c, d);
  words[0] = _mm512_unpacklo_epi64(low_ab, low_cd);
  words[1] = _mm512_unpackhi_epi64(low_ab, low_cd);
  words[2] = _mm512_unpacklo_epi64(high_ab, high_cd);
  words[3] = _mm512_unpackhi_epi64(high_ab, high_cd);
}

KV_VNNI_INLINE __m512i read_word(const uint8_t* p, uint64_t stride) {
  __m512i words[4];
  read_words(p, stride, words);
  return words[0];
}

// The fp16 number in the low, or the high, half of each word.
KV_VNNI_INLINE __m512 low_half(__m512i words) {
  return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}
KV_VNNI_INLINE __m512 high_half(__m512i words) { return low_half(_mm512_srli_epi32(words, 16)); }

// A group of 16 rows: pairs[k] has the weights that integers 2 k and 2 k + 1 of the activations
// belong to.
struct Tile {
  __m512i pairs[16];
  __m512 scale, offset;
};

// From words of eight nibbles: byte j has columns j (low) and j + 16.
KV_VNNI_INLINE void take_nibbles(const __m512i (&words)[4], __m512i (&pairs)[16]) {
  const __m512i mask = _mm512_set1_epi32(0x000f000f);
#pragma GCC unroll 4  // here and below so that the arrays are registers
  for (uint32_t i = 0; i < 4; ++i) {
    pairs[2 * i] = _mm512_and_si512(words[i], mask);
    pairs[2 * i + 1] = _mm512_and_si512(_mm512_srli_epi32(words[i], 8), mask);
    pairs[2 * i + 8] = _mm512_and_si512(_mm512_srli_epi32(words[i], 4), mask);
    pairs[2 * i + 9] = _mm512_and_si512(_mm512_srli_epi32(words[i], 12), mask);
  }
}

template <TensorType type>
KV_VNNI_INLINE void read_tile(const uint8_t* w, uint64_t stride, uint32_t g, Tile& t);

template <>
KV_VNNI_INLINE void read_tile<TensorType::q4_1>(const uint8_t* w, uint64_t stride, uint32_t g,
                                                Tile& t) {
  const uint8_t* p = w + g * 20;
  const __m512i head = read_word(p, stride);
  t.scale = low_half(head);
  t.offset = high_half(head);
  __m512i words[4];
  read_words(p + 4, stride, words);
  take_nibbles(words, t.pairs);
}

// A pair's columns are 4 i and 4 i + 2, or one more of each: their fifth bits are turned into place
// over their nibbles.
template <>
KV_VNNI_INLINE void read_tile<TensorType::q5_0>(const uint8_t* w, uint64_t stride, uint32_t g,
                                                Tile& t) {
  const uint8_t* p = w + g * 22;
  t.scale = low_half(read_word(p, stride));
  const __m512i fifths = read_word(p + 2, stride);
  __m512i words[4];
  read_words(p + 6, stride, words);
  take_nibbles(words, t.pairs);
  const __m512i low = _mm512_set1_epi32(0x00000010), high = _mm512_set1_epi32(0x00100000);
  const __m512i sixteen = _mm512_set1_epi16(16);
#pragma GCC unroll 16
  for (uint32_t k = 0; k < 16; ++k) {
    const uint32_t column = k / 2 * 4 + k % 2;
    const __m512i first = _mm512_rolv_epi32(fifths, _mm512_set1_epi32((36 - column) % 32));
    const __m512i second = _mm512_rolv_epi32(fifths, _mm512_set1_epi32((50 - column) % 32));
    const __m512i bits =
        _mm512_or_si512(_mm512_and_si512(first, low), _mm512_and_si512(second, high));
    t.pairs[k] = _mm512_sub_epi16(_mm512_or_si512(t.pairs[k], bits), sixteen);
  }
}

template <>
KV_VNNI_INLINE void read_tile<TensorType::q8_0>(const uint8_t* w, uint64_t stride, uint32_t g,
                                                Tile& t) {
  const uint8_t* p = w + g * 34;
  t.scale = low_half(read_word(p, stride));
  __m512i words[8];
  read_words(p + 2, stride, words);
  read_words(p + 18, stride, words + 4);
#pragma GCC unroll 8
  for (uint32_t i = 0; i < 8; ++i) {
    t.pairs[2 * i] = _mm512_srai_epi16(_mm512_slli_epi16(words[i], 8), 8);
    t.pairs[2 * i + 1] = _mm512_srai_epi16(words[i], 8);
  }
}

KV_VNNI_INLINE __m512i both_of(const int16_t* pair) {
  int32_t word;
  std::memcpy(&word, pair, 4);
  return _mm512_set1_epi32(word);
}

// 16 weight rows with rows first … first + count - 1 of x.
template <TensorType type, uint32_t count>
KV_VNNI void multiply_tile(const uint8_t* w, uint64_t stride, uint32_t columns,
                           const IntegerActivations& x, uint32_t first, float* y, size_t y_stride) {
  const size_t groups = columns / 32;
  __m512 acc[count];
#pragma GCC unroll 8
  for (uint32_t b = 0; b < count; ++b) acc[b] = _mm512_setzero_ps();
  const size_t part = kTileRows * stride / groups;
  for (uint32_t g = 0; g < groups; ++g) {
    prefetch_weights(w + g * part, part);
    Tile t;
    read_tile<type>(w, stride, g, t);
#pragma GCC unroll 8
    for (uint32_t b = 0; b < count; ++b) {
      const int16_t* q = x.q + size_t{first + b} * columns + g * 32;
      __m512i even = _mm512_setzero_si512(), odd = even;  // two chains: sums wait for each other
#pragma GCC unroll 16
      for (uint32_t k = 0; k < 16; k += 2) {
        even = _mm512_dpwssd_epi32(even, t.pairs[k], both_of(q + 2 * k));
        odd = _mm512_dpwssd_epi32(odd, t.pairs[k + 1], both_of(q + 2 * k + 2));
      }
      const size_t at = (first + b) * groups + g;
      acc[b] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_add_epi32(even, odd)),
                               _mm512_mul_ps(t.scale, _mm512_set1_ps(x.scale[at])), acc[b]);
      if constexpr (type == TensorType::q4_1) {
        acc[b] = _mm512_fmadd_ps(t.offset, _mm512_set1_ps(x.sum[at]), acc[b]);
      }
    }
  }
#pragma GCC unroll 8
  for (uint32_t b = 0; b < count; ++b) _mm512_storeu_ps(y + (first + b) * y_stride, acc[b]);
}

// 16 weight rows with all rows of x.
template <TensorType type>
void multiply_rows(const uint8_t* w, uint64_t stride, uint32_t columns, const IntegerActivations& x,
                   float* y, size_t y_stride) {
  uint32_t b = 0;
  for (; b + 8 <= x.count; b += 8) multiply_tile<type, 8>(w, stride, columns, x, b, y, y_stride);
  if (b + 4 <= x.count) {
    multiply_tile<type, 4>(w, stride, columns, x, b, y, y_stride);
    b += 4;
  }
  if (b + 2 <= x.count) {
    multiply_tile<type, 2>(w, stride, columns, x, b, y, y_stride);
    b += 2;
  }
  if (b < x.count) multiply_tile<type, 1>(w, stride, columns, x, b, y, y_stride);
}

template <TensorType type>
void multiply_integers(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                       const IntegerActivations& x, float* y, size_t y_stride) {
  uint32_t r = 0;
  for (; r + kTileRows <= rows; r += kTileRows) {
    multiply_rows<type>(w + r * stride, stride, columns, x, y + r, y_stride);
  }
  for (; r < rows; ++r) {
    for (uint32_t b = 0; b < x.count; ++b) {
      y[b * y_stride + r] = integer_product<type>(w + r * stride, columns, x, b);
    }
  }
}

// Integers 0 … 15 of a group from columns 0 … 15: see activation_order.
KV_VNNI_INLINE __m512i activation_lanes() {
  return _mm512_setr_epi32(0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
}

}  // namespace

MultiplyIntegers avx512_multiply_integers(TensorType type) {
  switch (type) {
    case TensorType::q4_1:
      return multiply_integers<TensorType::q4_1>;
    case TensorType::q5_0:
      return multiply_integers<TensorType::q5_0>;
    case TensorType::q8_0:
      return multiply_integers<TensorType::q8_0>;
    default:
      return nullptr;
  }
}

KV_VNNI void avx512_to_integers(const float* x, uint32_t columns, int16_t* q, float* scale,
                                float* sum) {
  for (uint32_t g = 0; g < columns / 32; ++g, x += 32, q += 32) {
    const __m512 a = _mm512_loadu_ps(x), b = _mm512_loadu_ps(x + 16);
    const __m512 size_a = _mm512_abs_ps(a), size_b = _mm512_abs_ps(b);
    const float largest = _mm512_reduce_max_ps(_mm512_max_ps(size_a, size_b));
    // Also true of numbers that are none.
    const __mmask16 odd_a = _mm512_cmp_ps_mask(size_a, _mm512_set1_ps(FLT_MAX), _CMP_NLE_UQ);
    const __mmask16 odd_b = _mm512_cmp_ps_mask(size_b, _mm512_set1_ps(FLT_MAX), _CMP_NLE_UQ);
    if ((odd_a | odd_b) != 0 || largest < kLeastActivation) {
      group_to_integers(x, q, scale[g], sum[g]);
      continue;
    }
    const __m512 factor = _mm512_set1_ps(kLargestInteger / largest);
    const __m512i lanes = activation_lanes();
    const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, factor));
    const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, factor));
    scale[g] = largest / kLargestInteger;
    sum[g] = scale[g] * static_cast<float>(_mm512_reduce_add_epi32(_mm512_add_epi32(qa, qb)));
    auto store = [&](int16_t* to, __m512i v) KV_VNNI {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm512_cvtepi32_epi16(_mm512_permutexvar_epi32(lanes, v)));
    };
    store(q, qa);
    store(q + 16, qb);
  }
}

}  // namespace kv
