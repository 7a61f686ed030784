// The AVX-512 kernels: the inner products of attention on codes by VNNI and the softmax; the rest
// is AVX2. Same bits as the scalar ones: products are exact integers, lanes are summed eight by
// eight.
//
// Everything after the pragma must only run after avx512_kernels() has asked the machine. Pure
// functions, any thread.
#include <immintrin.h>

#include <cstring>

#include "codec/kernels.h"
#include "codec/kernels_avx2.h"
#include "codec/turboquant.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")

namespace kv {
namespace {

#define KV_UNROLL _Pragma("GCC unroll 16")

inline __m512i load512(const void* p) { return _mm512_loadu_si512(p); }

inline __m512i pair_of(const int16_t* p) {  // two neighbours, in every lane
  int32_t pair;
  std::memcpy(&pair, p, 4);
  return _mm512_set1_epi32(pair);
}

// ---- scores

// 16 rows of 16 dwords → 16 columns of 16 dwords.
inline void transpose16(const int16_t* in, size_t stride, __m512i* out, size_t out_stride) {
  __m512i a[16], b[16];
  KV_UNROLL for (int r = 0; r < 16; ++r) a[r] = load512(in + static_cast<size_t>(r) * stride);
  KV_UNROLL for (int r = 0; r < 16; r += 2) {
    b[r] = _mm512_unpacklo_epi32(a[r], a[r + 1]);
    b[r + 1] = _mm512_unpackhi_epi32(a[r], a[r + 1]);
  }
  // a[4 k + c]: column c of each quarter, rows 4 k … 4 k + 3.
  KV_UNROLL for (int r = 0; r < 16; r += 4) {
    a[r] = _mm512_unpacklo_epi64(b[r], b[r + 2]);
    a[r + 1] = _mm512_unpackhi_epi64(b[r], b[r + 2]);
    a[r + 2] = _mm512_unpacklo_epi64(b[r + 1], b[r + 3]);
    a[r + 3] = _mm512_unpackhi_epi64(b[r + 1], b[r + 3]);
  }
  KV_UNROLL for (int c = 0; c < 4; ++c) {
    const __m512i even_low = _mm512_shuffle_i32x4(a[c], a[c + 4], 0x88);  // quarters 0, 2
    const __m512i odd_low = _mm512_shuffle_i32x4(a[c], a[c + 4], 0xdd);   // quarters 1, 3
    const __m512i even_high = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0x88);
    const __m512i odd_high = _mm512_shuffle_i32x4(a[c + 8], a[c + 12], 0xdd);
    const auto at = static_cast<size_t>(c);
    out[at * out_stride] = _mm512_shuffle_i32x4(even_low, even_high, 0x88);
    out[(at + 4) * out_stride] = _mm512_shuffle_i32x4(odd_low, odd_high, 0x88);
    out[(at + 8) * out_stride] = _mm512_shuffle_i32x4(even_low, even_high, 0xdd);
    out[(at + 12) * out_stride] = _mm512_shuffle_i32x4(odd_low, odd_high, 0xdd);
  }
}

// `queries` queries with a tile in columns: pairs of dims (dim / 2) of kTileRows rows.
template <int queries>
inline void dot_columns(const int16_t* q, const __m512i* columns, uint32_t dim, int32_t* out) {
  __m512i low[queries], high[queries];
  KV_UNROLL for (int i = 0; i < queries; ++i) low[i] = high[i] = _mm512_setzero_si512();
  for (uint32_t j = 0; j < dim; j += 2, columns += 2) {
    KV_UNROLL for (int i = 0; i < queries; ++i) {
      const __m512i pair = pair_of(q + static_cast<uint32_t>(i) * dim + j);
      low[i] = _mm512_dpwssd_epi32(low[i], pair, columns[0]);
      high[i] = _mm512_dpwssd_epi32(high[i], pair, columns[1]);
    }
  }
  KV_UNROLL for (int i = 0; i < queries; ++i) {
    _mm512_storeu_si512(out + i * int{kTileRows}, low[i]);
    _mm512_storeu_si512(out + i * int{kTileRows} + 16, high[i]);
  }
}

// Whole tiles are turned so that a lane is a row: then no sum runs across lanes.
void dot_codes(const int16_t* q, size_t count, const int16_t* k, size_t rows, uint32_t dim,
               int32_t* out) {
  if (rows != kTileRows || dim % 32 != 0) return avx2::dot_codes(q, count, k, rows, dim, out);
  __m512i columns[kMaxCodedDim];  // (dim / 2, 2)
  for (uint32_t j = 0; j < dim; j += 32) {
    transpose16(k + j, dim, columns + j, 2);
    transpose16(k + 16 * dim + j, dim, columns + j + 1, 2);
  }
  for (; count >= 4; count -= 4, q += 4 * dim, out += 4 * kTileRows) {
    dot_columns<4>(q, columns, dim, out);
  }
  if (count == 3) return dot_columns<3>(q, columns, dim, out);
  if (count == 2) return dot_columns<2>(q, columns, dim, out);
  if (count == 1) dot_columns<1>(q, columns, dim, out);
}

// ---- weighted sums

// `queries` queries over one tile: for every 32 dims, rows are taken in pairs.
template <int queries>
inline void add_codes_group(const int16_t* weights, const float* factors, const int16_t* v,
                            uint32_t dim, float* acc) {
  const __m512i first = _mm512_setr_epi32(0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
  const __m512i second = _mm512_add_epi32(first, _mm512_set1_epi32(8));
  for (uint32_t j = 0; j < dim; j += 32) {
    __m512i low[queries], high[queries];  // dims 0-3, 8-11, 16-19, 24-27 and the others
    KV_UNROLL for (int i = 0; i < queries; ++i) low[i] = high[i] = _mm512_setzero_si512();
    for (uint32_t r = 0; r < kTileRows; r += 2) {
      const __m512i a = load512(v + r * dim + j), b = load512(v + (r + 1) * dim + j);
      const __m512i ab_low = _mm512_unpacklo_epi16(a, b), ab_high = _mm512_unpackhi_epi16(a, b);
      KV_UNROLL for (int i = 0; i < queries; ++i) {
        const __m512i w = pair_of(weights + static_cast<uint32_t>(i) * kTileRows + r);
        low[i] = _mm512_dpwssd_epi32(low[i], w, ab_low);
        high[i] = _mm512_dpwssd_epi32(high[i], w, ab_high);
      }
    }
    KV_UNROLL for (int i = 0; i < queries; ++i) {
      float* out = acc + static_cast<uint32_t>(i) * dim + j;
      const __m512 f = _mm512_set1_ps(factors[i]);
      const __m512 s0 = _mm512_cvtepi32_ps(_mm512_permutex2var_epi32(low[i], first, high[i]));
      const __m512 s1 = _mm512_cvtepi32_ps(_mm512_permutex2var_epi32(low[i], second, high[i]));
      _mm512_storeu_ps(out, _mm512_fmadd_ps(s0, f, _mm512_loadu_ps(out)));
      _mm512_storeu_ps(out + 16, _mm512_fmadd_ps(s1, f, _mm512_loadu_ps(out + 16)));
    }
  }
}

void add_codes(const int16_t* weights, const float* factors, size_t count, const int16_t* v,
               uint32_t dim, float* acc) {
  if (dim % 32 != 0) return avx2::add_codes(weights, factors, count, v, dim, acc);
  for (; count >= 4; count -= 4, weights += 4 * kTileRows, factors += 4, acc += 4 * dim) {
    add_codes_group<4>(weights, factors, v, dim, acc);
  }
  if (count == 3) return add_codes_group<3>(weights, factors, v, dim, acc);
  if (count == 2) return add_codes_group<2>(weights, factors, v, dim, acc);
  if (count == 1) add_codes_group<1>(weights, factors, v, dim, acc);
}

// ---- softmax

// As exp_eight of the AVX2 kernels.
inline __m512 exp_sixteen(__m512 x) {
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504088896341f)),
                                  _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m512 r = _mm512_fmadd_ps(n, _mm512_set1_ps(-0.693359375f), x);
  r = _mm512_fmadd_ps(n, _mm512_set1_ps(2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0f));
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));
  return _mm512_mul_ps(p, _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23)));
}

float exp_weights(float* x, size_t n, float max) {
  const __m512 m = _mm512_set1_ps(max), least = _mm512_set1_ps(kExpMin);
  __m256 sum = _mm256_setzero_ps();
  size_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 d = _mm512_sub_ps(_mm512_loadu_ps(x + i), m);
    const __mmask16 seen = _mm512_cmp_ps_mask(d, least, _CMP_GE_OQ);
    const __m512 w = _mm512_maskz_mov_ps(seen, exp_sixteen(_mm512_maskz_mov_ps(seen, d)));
    _mm512_storeu_ps(x + i, w);
    sum = _mm256_add_ps(sum, _mm512_castps512_ps256(w));
    sum = _mm256_add_ps(sum, _mm512_extractf32x8_ps(w, 1));
  }
  if (i == 0) return avx2::exp_weights(x, n, max);
  if (i < n) {  // eight more
    const __m256 m8 = _mm256_set1_ps(max);
    const __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), m8);
    const __mmask8 seen = _mm256_cmp_ps_mask(d, _mm512_castps512_ps256(least), _CMP_GE_OQ);
    const __m512 e = exp_sixteen(_mm512_castps256_ps512(_mm256_maskz_mov_ps(seen, d)));
    const __m256 w = _mm256_maskz_mov_ps(seen, _mm512_castps512_ps256(e));
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
    k.dot_codes = dot_codes;
    k.add_codes = add_codes;
    k.exp_weights = exp_weights;
    return k;
  }();
  static const bool supported =
      avx2_kernels() != nullptr && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
  return supported ? &kernels : nullptr;
}

}  // namespace kv
