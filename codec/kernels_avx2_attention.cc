// The AVX2 kernels of attention: scores, weighted sums, softmax. Same bits as the scalar ones.
//
// Everything after the pragma must only run after avx2_kernels() has asked the machine. Pure
// functions, any thread.
#include <immintrin.h>

#include <cstring>

#include "codec/float16.h"
#include "codec/kernels.h"
#include "codec/kernels_avx2.h"
#include "codec/turboquant.h"

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace kv::avx2 {

// ---- scores

void score_codes(const int32_t* dots, const uint8_t* scales, size_t rows, float factor,
                 float offset, float* scores) {
  const __m256 f = _mm256_set1_ps(factor), o = _mm256_set1_ps(offset);
  size_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    __m256 scale = _mm256_mul_ps(f, _mm256_cvtph_ps(load_half(scales + 2 * r)));
    __m256 dot = _mm256_cvtepi32_ps(load(dots + r));
    _mm256_storeu_ps(scores + r, _mm256_fmadd_ps(dot, scale, o));
  }
  for (; r < rows; ++r) {
    float scale = factor * half_to_float(read_half(scales + 2 * r));
    scores[r] = __builtin_fmaf(static_cast<float>(dots[r]), scale, offset);
  }
}

void dot_exact(const float* q, const float* k, size_t rows, uint32_t dim, float* out) {
  size_t r = 0;
  for (; r + 8 <= rows; r += 8, k += 8 * size_t{dim}) {
    __m256 sums[8];
    for (auto& s : sums) s = _mm256_setzero_ps();
    for (uint32_t j = 0; j < dim; j += 8) {
      const __m256 qj = _mm256_loadu_ps(q + j);
      for (int i = 0; i < 8; ++i) {
        sums[i] =
            _mm256_fmadd_ps(qj, _mm256_loadu_ps(k + static_cast<uint32_t>(i) * dim + j), sums[i]);
      }
    }
    for (int i = 0; i < 8; ++i) out[r + static_cast<size_t>(i)] = sum_register(sums[i]);
  }
  for (; r < rows; ++r, k += dim) {
    __m256 sum = _mm256_setzero_ps();
    for (uint32_t j = 0; j < dim; j += 8) {
      sum = _mm256_fmadd_ps(_mm256_loadu_ps(q + j), _mm256_loadu_ps(k + j), sum);
    }
    out[r] = sum_register(sum);
  }
}

// ---- weighted sums

template <int registers>
KV_INLINE void add_exact_slab(const float* weights, const float* v, size_t rows, uint32_t dim,
                              float* acc) {
  __m256 sums[registers];
  for (int i = 0; i < registers; ++i) sums[i] = _mm256_loadu_ps(acc + 8 * i);
  for (size_t r = 0; r < rows; ++r, v += dim) {
    const __m256 w = _mm256_set1_ps(weights[r]);
    for (int i = 0; i < registers; ++i) {
      sums[i] = _mm256_fmadd_ps(w, _mm256_loadu_ps(v + 8 * i), sums[i]);
    }
  }
  for (int i = 0; i < registers; ++i) _mm256_storeu_ps(acc + 8 * i, sums[i]);
}

void add_exact(const float* weights, const float* v, size_t rows, uint32_t dim, float* acc) {
  uint32_t j = 0;
  for (; j + 64 <= dim; j += 64) add_exact_slab<8>(weights, v + j, rows, dim, acc + j);
  for (; j < dim; j += 8) add_exact_slab<1>(weights, v + j, rows, dim, acc + j);
}

void merge(float* acc, float a, const float* x, float b, size_t n) {
  const __m256 va = _mm256_set1_ps(a), vb = _mm256_set1_ps(b);
  for (size_t j = 0; j < n; j += 8) {
    __m256 old = _mm256_mul_ps(_mm256_loadu_ps(acc + j), va);
    _mm256_storeu_ps(acc + j, _mm256_fmadd_ps(_mm256_loadu_ps(x + j), vb, old));
  }
}

// ---- softmax

KV_INLINE float max_lane(__m256 v) {
  __m128 h = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  h = _mm_max_ps(h, _mm_movehl_ps(h, h));
  return _mm_cvtss_f32(_mm_max_ss(h, _mm_movehdup_ps(h)));
}

float largest(const float* x, size_t n) {
  __m256 top = _mm256_loadu_ps(x);
  for (size_t i = 8; i < n; i += 8) top = _mm256_max_ps(top, _mm256_loadu_ps(x + i));
  return max_lane(top);
}

// As exp_one of the scalar kernels.
KV_INLINE __m256 exp_eight(__m256 x) {
  __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504088896341f)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0.693359375f), x);
  r = _mm256_fmadd_ps(n, _mm256_set1_ps(2.12194440e-4f), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1f));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0f));
  __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
  return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
}

float exp_weights(float* x, size_t n, float max) {
  const __m256 m = _mm256_set1_ps(max), least = _mm256_set1_ps(kExpMin);
  __m256 sum = _mm256_setzero_ps();
  for (size_t i = 0; i < n; i += 8) {
    __m256 d = _mm256_sub_ps(_mm256_loadu_ps(x + i), m);
    __m256 seen = _mm256_cmp_ps(d, least, _CMP_GE_OQ);
    __m256 w = _mm256_and_ps(seen, exp_eight(_mm256_and_ps(seen, d)));
    _mm256_storeu_ps(x + i, w);
    sum = _mm256_add_ps(sum, w);
  }
  return sum_register(sum);
}

float quantize_weights(const float* w, const float* scales, int16_t* out) {
  __m256 v[4];
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_mul_ps(_mm256_loadu_ps(w + 8 * i), _mm256_loadu_ps(scales + 8 * i));
  }
  const float top = max_lane(_mm256_max_ps(_mm256_max_ps(v[0], v[1]), _mm256_max_ps(v[2], v[3])));
  if (!(top >= kWeightMin)) {
    std::memset(out, 0, kTileRows * sizeof(int16_t));
    return 0;
  }
  const __m256 to_int = _mm256_set1_ps(32767.0f / top);
  __m256i g[4];
  for (int i = 0; i < 4; ++i) g[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], to_int));
  store(out, _mm256_permute4x64_epi64(_mm256_packs_epi32(g[0], g[1]), 0xD8));
  store(out + 16, _mm256_permute4x64_epi64(_mm256_packs_epi32(g[2], g[3]), 0xD8));
  return top * (1.0f / 32767.0f);
}

}  // namespace kv::avx2

#pragma GCC pop_options
