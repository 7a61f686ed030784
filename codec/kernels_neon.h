// Shared by the NEON kernel files only: eight floats in two registers, and the other files'
// functions.
//
// Built for AArch64 only, whose every processor has what is used here (ARMv8.0). Pure functions,
// any thread.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace kv::neon {

#define KV_INLINE inline __attribute__((always_inline))

/// Eight lanes, as the scalar kernels' sums have: 0-3 in `a`, 4-7 in `b`.
struct Float8 {
  float32x4_t a, b;
};

KV_INLINE Float8 all8(float x) { return {vdupq_n_f32(x), vdupq_n_f32(x)}; }
KV_INLINE Float8 load8(const float* p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
KV_INLINE Float8 load8(const int16_t* p) {
  const int16x8_t v = vld1q_s16(p);
  return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(v))), vcvtq_f32_s32(vmovl_high_s16(v))};
}
KV_INLINE void store8(float* p, Float8 v) {
  vst1q_f32(p, v.a);
  vst1q_f32(p + 4, v.b);
}
KV_INLINE Float8 operator+(Float8 x, Float8 y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b)};
}
KV_INLINE Float8 operator-(Float8 x, Float8 y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b)};
}
KV_INLINE Float8 operator*(Float8 x, Float8 y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b)};
}
KV_INLINE Float8 operator-(Float8 x) { return {vnegq_f32(x.a), vnegq_f32(x.b)}; }
/// x * y + z, rounded once.
KV_INLINE Float8 fma8(Float8 x, Float8 y, Float8 z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b)};
}
KV_INLINE Float8 max8(Float8 x, Float8 y) { return {vmaxq_f32(x.a, y.a), vmaxq_f32(x.b, y.b)}; }
KV_INLINE float max_lane(Float8 v) { return vmaxvq_f32(vmaxq_f32(v.a, v.b)); }

/// ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)), as sum_lanes.
KV_INLINE float sum_register(Float8 v) {
  const float32x4_t s = vaddq_f32(v.a, v.b);
  return vpadds_f32(vadd_f32(vget_low_f32(s), vget_high_f32(s)));
}

/// Rounded to nearest even, saturated.
KV_INLINE int16x8_t to_int16(Float8 v) {
  return vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(v.a)), vcvtnq_s32_f32(v.b));
}

/// 8 fp16 values.
KV_INLINE Float8 load8_half(const uint8_t* p) {
  const float16x8_t h = vreinterpretq_f16_u8(vld1q_u8(p));
  return {vcvt_f32_f16(vget_low_f16(h)), vcvt_high_f32_f16(h)};
}
KV_INLINE uint16_t read_half(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// kernels_neon_codes.cc, kernels_neon_attention.cc; what they do: codec/kernels.h.
void unpack(const uint8_t* codes, size_t rows, uint32_t dim, uint8_t bits, int16_t* out);
void order_query(const int16_t* q, uint32_t dim, uint8_t bits, int16_t* out);
void dot_codes(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows,
               uint32_t dim, uint8_t bits, int32_t* dots);
void score_codes(const int32_t* dots, const uint8_t* scales, size_t rows, float factor,
                 float offset, float* scores);
void dot_exact(const float* q, const float* k, size_t rows, uint32_t dim, float* out);
void add_codes(const int16_t* weights, const float* factors, size_t count, const uint8_t* codes,
               uint32_t dim, uint8_t bits, float* acc, size_t stride);
void add_exact(const float* weights, const float* v, size_t rows, uint32_t dim, float* acc);
void merge(float* acc, float a, const float* x, float b, size_t n);
float largest(const float* x, size_t n);
float exp_weights(float* x, size_t n, float max);
float quantize_weights(const float* w, const float* scales, int16_t* out);

}  // namespace kv::neon
