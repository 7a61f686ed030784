// The NEON kernels of attention: scores, weighted sums, softmax. Same bits as the scalar ones.
//
// Built for AArch64 only. Pure functions, any thread.
#include <cstring>

#include "codec/float16.h"
#include "codec/kernels.h"
#include "codec/kernels_neon.h"
#include "codec/turboquant.h"

namespace kv::neon {

// ---- scores

void score_codes(const int32_t* dots, const uint8_t* scales, size_t rows, float factor,
                 float offset, float* scores) {
  const Float8 f = all8(factor), o = all8(offset);
  size_t r = 0;
  for (; r + 8 <= rows; r += 8) {
    const Float8 dot = {vcvtq_f32_s32(vld1q_s32(dots + r)), vcvtq_f32_s32(vld1q_s32(dots + r + 4))};
    store8(scores + r, fma8(dot, f * load8_half(scales + 2 * r), o));
  }
  for (; r < rows; ++r) {
    const float scale = factor * half_to_float(read_half(scales + 2 * r));
    scores[r] = __builtin_fmaf(static_cast<float>(dots[r]), scale, offset);
  }
}

template <uint32_t rows>
KV_INLINE void dot_exact_rows(const float* q, const float* k, uint32_t dim, float* out) {
  Float8 sums[rows];
#pragma GCC unroll 8  // here and below so that arrays are registers
  for (auto& s : sums) s = all8(0);
  for (uint32_t j = 0; j < dim; j += 8) {
    const Float8 qj = load8(q + j);
#pragma GCC unroll 8
    for (uint32_t r = 0; r < rows; ++r) {
      sums[r] = fma8(qj, load8(k + size_t{r} * dim + j), sums[r]);
    }
  }
#pragma GCC unroll 8
  for (uint32_t r = 0; r < rows; ++r) out[r] = sum_register(sums[r]);
}

void dot_exact(const float* q, const float* k, size_t rows, uint32_t dim, float* out) {
  size_t r = 0;
  for (; r + 8 <= rows; r += 8) dot_exact_rows<8>(q, k + r * dim, dim, out + r);
  for (; r < rows; ++r) dot_exact_rows<1>(q, k + r * dim, dim, out + r);
}

// ---- weighted sums

template <uint32_t registers>
KV_INLINE void add_exact_slab(const float* weights, const float* v, size_t rows, uint32_t dim,
                              float* acc) {
  Float8 sums[registers];
#pragma GCC unroll 8
  for (uint32_t i = 0; i < registers; ++i) sums[i] = load8(acc + 8 * i);
  for (size_t r = 0; r < rows; ++r, v += dim) {
    const Float8 w = all8(weights[r]);
#pragma GCC unroll 8
    for (uint32_t i = 0; i < registers; ++i) sums[i] = fma8(w, load8(v + 8 * i), sums[i]);
  }
#pragma GCC unroll 8
  for (uint32_t i = 0; i < registers; ++i) store8(acc + 8 * i, sums[i]);
}

void add_exact(const float* weights, const float* v, size_t rows, uint32_t dim, float* acc) {
  uint32_t j = 0;
  for (; j + 64 <= dim; j += 64) add_exact_slab<8>(weights, v + j, rows, dim, acc + j);
  for (; j < dim; j += 8) add_exact_slab<1>(weights, v + j, rows, dim, acc + j);
}

void merge(float* acc, float a, const float* x, float b, size_t n) {
  const Float8 all_a = all8(a), all_b = all8(b);
  for (size_t j = 0; j < n; j += 8) {
    store8(acc + j, fma8(load8(x + j), all_b, load8(acc + j) * all_a));
  }
}

// ---- softmax

float largest(const float* x, size_t n) {
  Float8 top = load8(x);
  for (size_t i = 8; i < n; i += 8) top = max8(top, load8(x + i));
  return max_lane(top);
}

// As exp_one of the scalar kernels.
KV_INLINE float32x4_t exp_four(float32x4_t x) {
  const float32x4_t n = vrndnq_f32(vmulq_n_f32(x, 1.44269504088896341f));
  float32x4_t r = vfmaq_n_f32(x, n, -0.693359375f);
  r = vfmaq_n_f32(r, n, 2.12194440e-4f);
  float32x4_t p = vdupq_n_f32(1.9875691500e-4f);
  p = vfmaq_f32(vdupq_n_f32(1.3981999507e-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(8.3334519073e-3f), p, r);
  p = vfmaq_f32(vdupq_n_f32(4.1665795894e-2f), p, r);
  p = vfmaq_f32(vdupq_n_f32(1.6666665459e-1f), p, r);
  p = vfmaq_f32(vdupq_n_f32(5.0000001201e-1f), p, r);
  p = vaddq_f32(vfmaq_f32(r, p, vmulq_f32(r, r)), vdupq_n_f32(1.0f));
  const int32x4_t exponent = vaddq_s32(vcvtnq_s32_f32(n), vdupq_n_s32(127));
  return vmulq_f32(p, vreinterpretq_f32_s32(vshlq_n_s32(exponent, 23)));
}

// exp(d), 0 below kExpMin.
KV_INLINE float32x4_t weight_four(float32x4_t d) {
  const uint32x4_t seen = vcgeq_f32(d, vdupq_n_f32(kExpMin));
  auto where_seen = [seen](float32x4_t v) {
    return vreinterpretq_f32_u32(vandq_u32(seen, vreinterpretq_u32_f32(v)));
  };
  return where_seen(exp_four(where_seen(d)));
}

float exp_weights(float* x, size_t n, float max) {
  const Float8 m = all8(max);
  Float8 sum = all8(0);
  for (size_t i = 0; i < n; i += 8) {
    const Float8 d = load8(x + i) - m, w = {weight_four(d.a), weight_four(d.b)};
    store8(x + i, w);
    sum = sum + w;
  }
  return sum_register(sum);
}

float quantize_weights(const float* w, const float* scales, int16_t* out) {
  Float8 v[4];
  for (int i = 0; i < 4; ++i) v[i] = load8(w + 8 * i) * load8(scales + 8 * i);
  const float top = max_lane(max8(max8(v[0], v[1]), max8(v[2], v[3])));
  if (!(top >= kWeightMin)) {
    std::memset(out, 0, kTileRows * sizeof(int16_t));
    return 0;
  }
  const Float8 to_int = all8(32767.0f / top);
  for (int i = 0; i < 4; ++i) vst1q_s16(out + 8 * i, to_int16(v[i] * to_int));
  return top * (1.0f / 32767.0f);
}

}  // namespace kv::neon
