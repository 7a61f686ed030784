// The AVX-512 kernels: products with packed codes and weighted sums by VBMI and VNNI, and the
// softmax; the rest is AVX2.
//
// A permutation of words turns 32 codes into code values at once, in the order of code_order.h.
// Sums are exact integers, softmax sums run in eight lanes: the same bits as the scalar kernels.
// Everything after the pragma must only run after avx512_kernels() has asked the machine. Pure
// functions, any thread.
#include <immintrin.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "codec/code_order.h"
#include "codec/kernels.h"
#include "codec/kernels_avx2.h"
#include "codec/turboquant.h"
#include "proto/plane.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vnni")

namespace kv {
namespace {

#define KV_UNROLL _Pragma("GCC unroll 16")

KV_INLINE __m512i load512(const void* p) { return _mm512_loadu_si512(p); }
KV_INLINE __m512i pair_of(const int16_t* p) {  // two neighbours, in every lane
  int32_t pair;
  std::memcpy(&pair, p, 4);
  return _mm512_set1_epi32(pair);
}

// sum += the products of a's and b's neighbours, in place: left alone, the compiler copies every
// sum to and fro in the innermost loops.
KV_INLINE void add_products(__m512i& sum, __m512i a, __m512i b) {
  asm("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

constexpr uint8_t kPieces[4] = {0, 1, 2, 3};  // groups in order: one register of 32 values

// One instance of a kernel: bits are constant, dims are not. Words hold one byte of a plane each.
template <uint8_t bits>
struct Codes {
  static constexpr int kSlices = static_cast<int>(code_plane(32, bits).slices);
  static constexpr int kShift = static_cast<int>(code_plane(32, bits).shift);

  __m512i table;  // code values, repeated: what stands above an index does not matter
  KV_INLINE Codes() {
    if constexpr (bits != 8) {
      alignas(64) int16_t values[32];
      for (uint32_t i = 0; i < 32; ++i) values[i] = code_value(bits, i % (1u << bits));
      table = _mm512_load_si512(values);
    }
  }

  // Third bits of a chunk: of slice s at bit 2 s of each byte.
  static KV_INLINE __m256i third_bits(const uint8_t* row, uint32_t dim, uint32_t at) {
    const uint8_t* plane = row + dim / 4;
    const uint32_t even_bytes = at < dim / 8 ? dim / 8 - at : 0;
    const auto is_even = static_cast<__mmask32>(even_bytes >= 32 ? ~0u : (1u << even_bytes) - 1);
    const __m256i odd = _mm256_srli_epi16(avx2::load(plane + at - dim / 8), 1);
    return _mm256_mask_loadu_epi8(odd, is_even, plane + at);
  }
  // The values of slice s of 32 words; `third` has their third bits.
  template <int s>
  KV_INLINE __m512i values(__m512i words, __m512i third) const {
    if constexpr (bits == 8) return words;
    __m512i index = _mm512_srli_epi16(words, kShift * s);
    if constexpr (bits == 3) {
      const __m512i bit =
          s == 0 ? _mm512_slli_epi16(third, 2) : _mm512_srli_epi16(third, 2 * s - 2);
      index = _mm512_ternarylogic_epi32(_mm512_set1_epi16(3), index, bit, 0xCA);
    }
    return _mm512_permutexvar_epi16(index, table);
  }
};

// Calls f with 0 … n - 1 as constants.
template <int n, typename F>
KV_INLINE void unrolled(F f) {
  [&]<int... i>(std::integer_sequence<int, i...>) KV_LAMBDA_INLINE {
    (f(std::integral_constant<int, i>()), ...);
  }
  (std::make_integer_sequence<int, n>());
}

// ---- scores

// a[0 … 3] → in each quarter, the sums of the four registers' quarters.
KV_INLINE __m512i sum_quarters(const __m512i* a) {
  const __m512i ab =
      _mm512_add_epi32(_mm512_unpacklo_epi32(a[0], a[1]), _mm512_unpackhi_epi32(a[0], a[1]));
  const __m512i cd =
      _mm512_add_epi32(_mm512_unpacklo_epi32(a[2], a[3]), _mm512_unpackhi_epi32(a[2], a[3]));
  return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}
KV_INLINE __m512i add_halves(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xdd));
}

// Four rows with `count` queries; row r of them is at codes + min(r, last) * row_bytes.
template <uint8_t bits, int count>
KV_INLINE void dot_rows(const Codes<bits>& set, const int16_t* queries, size_t width,
                        const uint8_t* codes, size_t row_bytes, size_t rows, uint32_t dim,
                        int32_t* dots) {
  const uint8_t* row[4];
  KV_UNROLL for (size_t r = 0; r < 4; ++r) row[r] = codes + (r < rows ? r : rows - 1) * row_bytes;
  __m512i sums[4][4];
  KV_UNROLL for (int i = 0; i < 16; ++i) sums[i / 4][i % 4] = _mm512_setzero_si512();
  const int16_t* q = queries;
  for (uint32_t at = 0; at < code_plane(dim, bits).bytes; at += 32) {
    __m512i words[4], third[4];
    KV_UNROLL for (int r = 0; r < 4; ++r) {
      const __m256i chunk = avx2::load(row[r] + at);
      words[r] = bits == 8 ? _mm512_cvtepi8_epi16(chunk) : _mm512_cvtepu8_epi16(chunk);
      third[r] = bits == 3 ? _mm512_cvtepu8_epi16(set.third_bits(row[r], dim, at)) : words[r];
    }
    unrolled<Codes<bits>::kSlices>([&](auto s) KV_LAMBDA_INLINE {
      __m512i k[4];
      KV_UNROLL for (int r = 0; r < 4; ++r) k[r] = set.template values<s()>(words[r], third[r]);
      KV_UNROLL for (int i = 0; i < count; ++i) {
        const __m512i part = load512(q + static_cast<size_t>(i) * width);
        KV_UNROLL for (int r = 0; r < 4; ++r) { add_products(sums[i][r], k[r], part); }
      }
      q += 32;
    });
  }
  alignas(64) int32_t out[16];
  const __m512i low = add_halves(sum_quarters(sums[0]), sum_quarters(sums[1]));
  const __m512i high = add_halves(sum_quarters(sums[2]), sum_quarters(sums[3]));
  _mm512_store_si512(out, add_halves(low, high));
  for (int i = 0; i < count; ++i) {
    std::memcpy(dots + i * int{kScoreRows}, out + 4 * i, (rows < 4 ? rows : 4) * sizeof(int32_t));
  }
}

template <uint8_t bits, int count>
void dot_tile(const int16_t* queries, const uint8_t* codes, size_t rows, uint32_t dim,
              int32_t* dots) {
  const Codes<bits> set;
  const size_t row_bytes = code_bytes(dim, bits), width = query_width(dim);
  size_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    dot_rows<bits, count>(set, queries, width, codes + r * row_bytes, row_bytes, 4, dim, dots + r);
  }
  if (r == rows) return;
  dot_rows<bits, count>(set, queries, width, codes + r * row_bytes, row_bytes, rows - r, dim,
                        dots + r);
}

// ---- scores of many queries: a lane of the register for each of them

// a[i] lane j ↔ a[j] lane i.
KV_INLINE void transpose(__m512i (&a)[16]) {
  __m512i b[16];
  KV_UNROLL for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  KV_UNROLL for (int i = 0; i < 16; i += 4) {
    a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
    a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
    a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
    a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
  }
  KV_UNROLL for (int i = 0; i < 4; ++i) {  // quarter j of a[4 r + i]: column 4 j + i of rows 4 r …
    const __m512i low_01 = _mm512_shuffle_i32x4(a[i], a[4 + i], 0x44);
    const __m512i high_01 = _mm512_shuffle_i32x4(a[i], a[4 + i], 0xee);
    const __m512i low_23 = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0x44);
    const __m512i high_23 = _mm512_shuffle_i32x4(a[8 + i], a[12 + i], 0xee);
    a[i] = _mm512_shuffle_i32x4(low_01, low_23, 0x88);
    a[4 + i] = _mm512_shuffle_i32x4(low_01, low_23, 0xdd);
    a[8 + i] = _mm512_shuffle_i32x4(high_01, high_23, 0x88);
    a[12 + i] = _mm512_shuffle_i32x4(high_01, high_23, 0xdd);
  }
}

// One row's code values in the order of a query: whole groups of 32.
template <uint8_t bits>
KV_INLINE void unpack_row(const Codes<bits>& set, const uint8_t* row, uint32_t dim, int16_t* out) {
  for (uint32_t at = 0; at < code_plane(dim, bits).bytes; at += 32) {
    const __m256i chunk = avx2::load(row + at);
    const __m512i words = bits == 8 ? _mm512_cvtepi8_epi16(chunk) : _mm512_cvtepu8_epi16(chunk);
    const __m512i third = bits == 3 ? _mm512_cvtepu8_epi16(set.third_bits(row, dim, at)) : words;
    unrolled<Codes<bits>::kSlices>([&](auto s) KV_LAMBDA_INLINE {
      _mm512_storeu_si512(out, set.template values<s()>(words, third));
      out += 32;
    });
  }
}

// Code values of 16 rows, and words 2 j, 2 j + 1 of 16 queries at 32 j, or words 4 j … 4 j + 3
// of 8.
constexpr size_t kManyWidth = query_width(kMaxCodedDim);
using ManyRows = int16_t[16][kManyWidth];
using ManyQueries = int16_t[kManyWidth * 16];

KV_INLINE void place_sixteen(const int16_t* queries, size_t count, uint32_t dim, size_t words,
                             ManyQueries& q) {
  for (size_t at = 0; at < words; at += 32) {
    __m512i group[16];
    KV_UNROLL for (size_t i = 0; i < 16; ++i) {
      group[i] = i < count ? load512(queries + i * query_width(dim) + at) : _mm512_setzero_si512();
    }
    transpose(group);
    KV_UNROLL for (size_t i = 0; i < 16; ++i) _mm512_store_si512(q + (at + 2 * i) * 16, group[i]);
  }
}

KV_INLINE void place_eight(const int16_t* queries, size_t count, uint32_t dim, size_t words,
                           ManyQueries& q) {
  std::memset(q, 0, words * 16);
  for (size_t i = 0; i < count; ++i, queries += query_width(dim)) {
    for (size_t at = 0; at < words; at += 4) std::memcpy(q + at * 8 + 4 * i, queries + at, 8);
  }
}

// sums[r] lane i: row r with query i.
KV_INLINE void sum_sixteen(const ManyQueries& q, const ManyRows& k, size_t words,
                           __m512i (&sums)[16]) {
  __m512i own[16];  // registers: nothing else sees them
  unrolled<16>([&](auto r) KV_LAMBDA_INLINE { own[r] = _mm512_setzero_si512(); });
  for (size_t at = 0; at < words; at += 2) {
    const __m512i part = _mm512_load_si512(q + at * 16);
    unrolled<16>([&](auto r) KV_LAMBDA_INLINE { add_products(own[r], pair_of(k[r] + at), part); });
  }
  unrolled<16>([&](auto r) KV_LAMBDA_INLINE { sums[r] = own[r]; });
}

// sums[r] lanes 2 i and 2 i + 1: two parts of row r with query i.
KV_INLINE void sum_eight(const ManyQueries& q, const ManyRows& k, size_t words,
                         __m512i (&sums)[16]) {
  __m512i own[16];
  unrolled<16>([&](auto r) KV_LAMBDA_INLINE { own[r] = _mm512_setzero_si512(); });
  for (size_t at = 0; at < words; at += 4) {
    const __m512i part = _mm512_load_si512(q + at * 8);
    unrolled<16>([&](auto r) KV_LAMBDA_INLINE {
      int64_t four;
      std::memcpy(&four, k[r] + at, 8);
      add_products(own[r], _mm512_set1_epi64(four), part);
    });
  }
  unrolled<16>([&](auto r) KV_LAMBDA_INLINE { sums[r] = own[r]; });
}

// dot_codes of up to 32 queries: no sum runs across lanes, whatever dim is.
template <uint8_t bits>
void dot_many(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows, uint32_t dim,
              int32_t* dots) {
  const Codes<bits> set;
  const size_t row_bytes = code_bytes(dim, bits);
  const size_t words = (code_plane(dim, bits).bytes + 31) / 32 * Codes<bits>::kSlices * 32;
  alignas(64) ManyQueries sixteen[2], eight;
  alignas(64) ManyRows k;
  const size_t left = count % 16, whole = count / 16 + (left > 8 ? 1 : 0);
  const size_t by_sixteen = std::min(whole * 16, count);
  for (size_t i = 0; i < whole; ++i) {
    place_sixteen(queries + 16 * i * query_width(dim), count - 16 * i, dim, words, sixteen[i]);
  }
  if (by_sixteen < count) {
    place_eight(queries + by_sixteen * query_width(dim), count - by_sixteen, dim, words, eight);
  }
  for (size_t first = 0; first < rows; first += 16) {
    for (size_t r = 0; r < 16; ++r) {
      const size_t row = first + r < rows ? first + r : rows - 1;
      unpack_row<bits>(set, codes + row * row_bytes, dim, k[r]);
    }
    __m512i sums[16];
    for (size_t i = 0; i < by_sixteen; i += 16) {
      sum_sixteen(sixteen[i / 16], k, words, sums);
      transpose(sums);
      KV_UNROLL for (size_t j = 0; j < 16; ++j) {
        if (i + j < count) _mm512_storeu_si512(dots + (i + j) * kScoreRows + first, sums[j]);
      }
    }
    if (by_sixteen == count) continue;
    sum_eight(eight, k, words, sums);
    transpose(sums);
    KV_UNROLL for (size_t j = 0; j < 8; ++j) {
      if (by_sixteen + j < count) {
        _mm512_storeu_si512(dots + (by_sixteen + j) * kScoreRows + first,
                            _mm512_add_epi32(sums[2 * j], sums[2 * j + 1]));
      }
    }
  }
}

// ---- weighted sums

// Bytes 16 h … 16 h + 15 of two rows' chunks as pairs of words, each byte in both of its word's.
KV_INLINE __m512i pair_rows(__m256i a, __m256i b, __m512i order) {
  const __m512i both = _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
  return _mm512_permutexvar_epi8(order, both);
}

// to += sums * factor, of the lanes that `mask` has: nearly always all of them.
KV_INLINE void add_scaled(float* to, __mmask16 mask, __m512i sums, __m512 factor) {
  const __m512 f = _mm512_cvtepi32_ps(sums);
  if (mask == 0xFFFF) {
    _mm512_storeu_ps(to, _mm512_fmadd_ps(f, factor, _mm512_loadu_ps(to)));
  } else {
    const __m512 old = _mm512_maskz_loadu_ps(mask, to);
    _mm512_mask_storeu_ps(to, mask, _mm512_fmadd_ps(f, factor, old));
  }
}

// 16 dims of each slice of a chunk, from its byte `half`, over a tile of rows.
template <uint8_t bits, int count>
KV_INLINE void add_half_chunk(const Codes<bits>& set, const int16_t* weights, const float* factors,
                              const uint8_t* codes, size_t row_bytes, uint32_t dim, uint32_t at,
                              uint32_t half, float* acc, size_t stride) {
  constexpr int kSlices = Codes<bits>::kSlices;
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i order =
      _mm512_add_epi32(_mm512_mullo_epi32(lane, _mm512_set1_epi32(0x01010101)),
                       _mm512_set1_epi32(static_cast<int>(0x20200000u + 0x01010101u * half)));
  __m512i sums[kSlices * count];  // registers: of query n / kSlices, slice n % kSlices
  unrolled<kSlices * count>([&](auto n) KV_LAMBDA_INLINE { sums[n] = _mm512_setzero_si512(); });
  for (uint32_t r = 0; r < kTileRows; r += 2, codes += 2 * row_bytes) {
    __m512i words = pair_rows(avx2::load(codes + at), avx2::load(codes + row_bytes + at), order);
    __m512i third = words;
    if constexpr (bits == 8) words = _mm512_srai_epi16(words, 8);
    if constexpr (bits == 3) {
      third = pair_rows(set.third_bits(codes, dim, at), set.third_bits(codes + row_bytes, dim, at),
                        order);
    }
    __m512i v[kSlices];
    unrolled<kSlices>([&](auto s)
                          KV_LAMBDA_INLINE { v[s] = set.template values<s()>(words, third); });
    unrolled<kSlices * count>([&](auto n) KV_LAMBDA_INLINE {
      add_products(sums[n], v[n % kSlices], pair_of(weights + n / kSlices * kTileRows + r));
    });
  }
  __m512i totals[kSlices * count];  // memory: else each sum is copied to and fro in the loop above
  unrolled<kSlices * count>([&](auto n) KV_LAMBDA_INLINE { totals[n] = sums[n]; });
  asm("" : "+m"(totals));
  const uint32_t bytes = code_plane(dim, bits).bytes, left = bytes - at - half;
  const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFF : (1u << left) - 1);
  float* to = acc + at + half;
  unrolled<count>([&](auto i) KV_LAMBDA_INLINE {
    const __m512 factor = _mm512_set1_ps(factors[i]);
    unrolled<kSlices>([&](auto s) KV_LAMBDA_INLINE {
      add_scaled(to + size_t{s} * bytes, mask, totals[i * kSlices + s], factor);
    });
    to += stride;
  });
}

template <uint8_t bits, int count>
void add_tile(const int16_t* weights, const float* factors, const uint8_t* codes, uint32_t dim,
              float* acc, size_t stride) {
  const Codes<bits> set;
  const uint32_t bytes = code_plane(dim, bits).bytes;
  const size_t row_bytes = code_bytes(dim, bits);
  for (uint32_t at = 0; at < bytes; at += 32) {
    for (uint32_t half = 0; half < 32 && at + half < bytes; half += 16) {
      add_half_chunk<bits, count>(set, weights, factors, codes, row_bytes, dim, at, half, acc,
                                  stride);
    }
  }
}

// Calls f with bits and count as constants.
template <uint8_t bits, typename F>
KV_INLINE void with_count(size_t count, F f) {
  using Bits = std::integral_constant<uint8_t, bits>;
  switch (count) {
    case 1:
      return f(Bits(), std::integral_constant<int, 1>());
    case 2:
      return f(Bits(), std::integral_constant<int, 2>());
    case 3:
      return f(Bits(), std::integral_constant<int, 3>());
    default:
      return f(Bits(), std::integral_constant<int, 4>());
  }
}
template <typename F>
KV_INLINE void with_shape(uint8_t bits, size_t count, F f) {
  switch (bits) {
    case 1:
      return with_count<1>(count, f);
    case 2:
      return with_count<2>(count, f);
    case 3:
      return with_count<3>(count, f);
    case 4:
      return with_count<4>(count, f);
    default:
      return with_count<8>(count, f);
  }
}

void order_query(const int16_t* q, uint32_t dim, uint8_t bits, int16_t* out) {
  if (dim % 8 != 0) return scalar_kernels().order_query(q, dim, bits, out);
  order_by_groups(q, dim, bits, false, kPieces, out);
}

void dot_codes(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows,
               uint32_t dim, uint8_t bits, int32_t* dots) {
  if (dim % 8 != 0) return scalar_kernels().dot_codes(queries, count, codes, rows, dim, bits, dots);
  if (count > kQueryGroup) {
    return with_shape(bits, 1,
                      [=](auto b, auto) { dot_many<b()>(queries, count, codes, rows, dim, dots); });
  }
  with_shape(bits, count,
             [=](auto b, auto n) { dot_tile<b(), n()>(queries, codes, rows, dim, dots); });
}

void add_codes(const int16_t* weights, const float* factors, size_t count, const uint8_t* codes,
               uint32_t dim, uint8_t bits, float* acc, size_t stride) {
  if (dim % 8 != 0) {
    return scalar_kernels().add_codes(weights, factors, count, codes, dim, bits, acc, stride);
  }
  size_t i = 0;
  if (bits == 4) {  // its two slices leave registers for eight queries
    for (; i + 8 <= count; i += 8) {
      add_tile<4, 8>(weights + i * kTileRows, factors + i, codes, dim, acc + i * stride, stride);
    }
  }
  // The sums of eight slices leave registers for two.
  const size_t most = bits == 1 ? 2 : kQueryGroup;
  for (; i < count; i += most) {
    with_shape(bits, std::min(count - i, most), [=](auto b, auto n) {
      add_tile<b(), n()>(weights + i * kTileRows, factors + i, codes, dim, acc + i * stride,
                         stride);
    });
  }
}

// ---- softmax

// As exp_eight of the AVX2 kernels; 0 in lanes not `seen`. In the others p 2^n is a normal number,
// so that vscalefps rounds nothing.
KV_INLINE __m512 exp_sixteen(__mmask16 seen, __m512 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const __m512 n =
      _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)), kNearest);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  return _mm512_maskz_scalef_ps(seen, p, n);
}

float exp_weights(float* x, size_t n, float max) {
  const __m512 m = _mm512_set1_ps(max), least = _mm512_set1_ps(kExpMin);
  __m256 sum = _mm256_setzero_ps();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x + i), m);
    const __m512 w = exp_sixteen(_mm512_cmp_ps_mask(d, least, _CMP_GE_OQ), d);
    _mm512_storeu_ps(x + i, w);
    sum = _mm256_add_ps(sum, _mm512_castps512_ps256(w));
    sum = _mm256_add_ps(sum, _mm512_extractf32x8_ps(w, 1));
  }
  if (i < n) {  // eight more
    const __m512 d = _mm512_sub_ps(_mm512_zextps256_ps512(_mm256_loadu_ps(x + i)), m);
    const __m256 w =
        _mm512_castps512_ps256(exp_sixteen(_mm512_cmp_ps_mask(d, least, _CMP_GE_OQ), d));
    _mm256_storeu_ps(x + i, w);
    sum = _mm256_add_ps(sum, w);
  }
  return avx2::sum_register(sum);
}

}  // namespace
}  // namespace kv

#pragma GCC pop_options

namespace kv {

const Kernels* avx512_kernels() {
  static const Kernels kernels = [] {
    Kernels k = avx2_kernels() != nullptr ? *avx2_kernels() : scalar_kernels();
    k.name = "avx512";
    k.order_query = order_query;
    k.dot_codes = dot_codes;
    k.add_codes = add_codes;
    k.exp_weights = exp_weights;
    return k;
  }();
  static const bool supported =
      avx2_kernels() != nullptr && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi") &&
      __builtin_cpu_supports("avx512vnni");
  return supported ? &kernels : nullptr;
}

}  // namespace kv
