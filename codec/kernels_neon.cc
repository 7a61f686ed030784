// The NEON kernels: the same bits as the scalar ones, in the same order of operations. Conversions,
// rotation and encoding are here; codes and attention in kernels_neon_codes.cc and
// kernels_neon_attention.cc.
//
// Built for AArch64 only. Vectors of a length that is no multiple of 8 go to the scalar kernels.
// Pure functions, any thread.
#include "codec/kernels_neon.h"

#include <array>
#include <cmath>
#include <cstring>

#include "codec/float16.h"
#include "codec/kernels.h"
#include "codec/packing.h"
#include "codec/turboquant.h"
#include "codec/vector_scale.h"
#include "proto/plane.h"

namespace kv {
namespace {

using namespace neon;

// ---- conversions

void f16_to_f32(const uint8_t* in, float* out, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) store8(out + i, load8_half(in + 2 * i));
  for (; i < n; ++i) out[i] = half_to_float(read_half(in + 2 * i));
}

void f32_to_f16(const float* in, uint8_t* out, size_t n) {
  const float32x4_t high = vdupq_n_f32(kHalfMax), low = vdupq_n_f32(-kHalfMax);
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const float32x4_t x = vmaxq_f32(low, vminq_f32(high, vld1q_f32(in + i)));
    vst1_u8(out + 2 * i, vreinterpret_u8_f16(vcvt_f16_f32(x)));
  }
  for (; i < n; ++i) {
    uint16_t h = float_to_half(in[i] > kHalfMax ? kHalfMax : in[i] < -kHalfMax ? -kHalfMax : in[i]);
    std::memcpy(out + 2 * i, &h, 2);
  }
}

void center(float* x, const float* mean, const float* gain, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) store8(x + i, (load8(x + i) - load8(mean + i)) * load8(gain + i));
  for (; i < n; ++i) x[i] = (x[i] - mean[i]) * gain[i];
}

void uncenter(float* x, const float* mean, const float* inverse_gain, size_t n) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    store8(x + i, load8(x + i) * load8(inverse_gain + i) + load8(mean + i));
  }
  for (; i < n; ++i) x[i] = x[i] * inverse_gain[i] + mean[i];
}

// ---- rotation

// Strides 1, 2 within a register: partner + (+-1) * self rounds as a + b and a - b do; then 4.
KV_INLINE Float8 hadamard8(Float8 v) {
  const float32x4_t s1 = {1, -1, 1, -1}, s2 = {1, 1, -1, -1};
  for (float32x4_t* x : {&v.a, &v.b}) {
    *x = vfmaq_f32(vrev64q_f32(*x), *x, s1);
    *x = vfmaq_f32(vextq_f32(*x, *x, 2), *x, s2);
  }
  return {vaddq_f32(v.a, v.b), vsubq_f32(v.a, v.b)};
}

KV_INLINE void butterfly(Float8& a, Float8& b) {
  const Float8 sum = a + b;
  b = a - b;
  a = sum;
}

// x = H load(j): the Walsh-Hadamard part of the rotation, `n` stripes of one number at a time, then
// the larger strides over memory. `load(j)` gives values j … j + 7.
template <uint32_t n, typename Load>
KV_INLINE void hadamard(float* x, uint32_t dim, uint32_t odd, Load load) {
  const uint32_t apart = 8 * odd;
  for (uint32_t block = 0; block < dim; block += n * apart) {
    for (uint32_t first = block; first < block + apart; first += 8) {
      Float8 v[n];
#pragma GCC unroll 8  // here and below so that arrays are registers
      for (uint32_t i = 0; i < n; ++i) v[i] = hadamard8(load(first + i * apart));
#pragma GCC unroll 8
      for (uint32_t stride = 1; stride < n; stride *= 2) {
#pragma GCC unroll 8
        for (uint32_t i = 0; i < n; ++i) {
          if ((i & stride) == 0) butterfly(v[i], v[i + stride]);
        }
      }
#pragma GCC unroll 8
      for (uint32_t i = 0; i < n; ++i) store8(x + first + i * apart, v[i]);
    }
  }
  for (uint32_t stride = n * apart; stride < dim; stride *= 2) {
    for (uint32_t block = 0; block < dim; block += 2 * stride) {
      for (uint32_t j = block; j < block + stride; j += 8) {
        Float8 a = load8(x + j), b = load8(x + j + stride);
        butterfly(a, b);
        store8(x + j, a);
        store8(x + j + stride, b);
      }
    }
  }
}

KV_INLINE void mix_odd_factor(float* x, uint32_t dim, uint32_t p, uint32_t stride) {
  const Float8 factor = all8(static_cast<float>(p));
  for (uint32_t block = 0; block < dim; block += p * stride) {
    for (uint32_t j = block; j < block + stride; j += 8) {
      Float8 sum = load8(x + j);
      for (uint32_t i = 1; i < p; ++i) sum = sum + load8(x + j + i * stride);
      const Float8 minus_twice = -(sum + sum);
      for (uint32_t i = 0; i < p; ++i) {
        float* at = x + j + i * stride;
        store8(at, fma8(load8(at), factor, minus_twice));
      }
    }
  }
}

// x = M load(j), M as the scalar kernels' transform.
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
                      [=](uint32_t p, uint32_t stride) { mix_odd_factor(x, dim, p, stride); });
}

void rotate(float* x, uint32_t dim, const float* signs) {
  if (dim % 8 != 0) return scalar_kernels().rotate(x, dim, signs);
  transform(x, dim, [=](uint32_t j) { return load8(x + j) * load8(signs + j); });
}

void unrotate(float* x, uint32_t dim, const float* signs) {
  if (dim % 8 != 0) return scalar_kernels().unrotate(x, dim, signs);
  transform(x, dim, [=](uint32_t j) { return load8(x + j); });
  for (uint32_t j = 0; j < dim; j += 8) store8(x + j, load8(x + j) * load8(signs + j));
}

void decode(const int16_t* values, uint32_t dim, const float* signs, float factor, float* out) {
  if (dim % 8 != 0) return scalar_kernels().decode(values, dim, signs, factor, out);
  transform(out, dim, [=](uint32_t j) { return load8(values + j); });
  const Float8 f = all8(factor);
  for (uint32_t j = 0; j < dim; j += 8) {
    store8(out + j, load8(out + j) * (load8(signs + j) * f));
  }
}

// ---- encode

KV_INLINE float square_norm(const float* x, uint32_t dim) {
  Float8 lanes[4] = {all8(0), all8(0), all8(0), all8(0)};
  auto add = [&lanes](const float* at, uint32_t i) {
    const Float8 v = load8(at);
    lanes[i] = fma8(v, v, lanes[i]);
  };
  uint32_t j = 0;
  for (; j + 32 <= dim; j += 32) {
    for (uint32_t i = 0; i < 4; ++i) add(x + j + 8 * i, i);
  }
  for (uint32_t i = 0; j + 8 * i < dim; ++i) add(x + j + 8 * i, i);
  return sum_register((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));
}

// Cell numbers of 8 grid values.
template <uint8_t bits>
KV_INLINE uint8x8_t cells8(int16x8_t grid) {
  constexpr const HalfCodebook& book = half_codebook(bits);
  const int16x8_t magnitude = vabsq_s16(grid);
  uint16x8_t cell = vdupq_n_u16(0);
#pragma GCC unroll 8
  for (int k = 0; k + 1 < book.cells; ++k) {
    cell = vsubq_u16(cell, vcgtq_s16(magnitude, vdupq_n_s16(book.threshold[k])));
  }
  return vmovn_u16(cell);
}

// Low and high bytes of the squares of the cells' centroids.
template <uint8_t bits>
constexpr auto kSquareBytes = [] {
  std::array<std::array<uint8_t, 16>, 2> bytes{};
  for (size_t i = 0; i < 8; ++i) {
    bytes[0][i] = static_cast<uint8_t>(half_codebook(bits).square[i]);
    bytes[1][i] = static_cast<uint8_t>(half_codebook(bits).square[i] >> 8);
  }
  return bytes;
}();

// Indices of `dim` rotated values; returns the sum of their squared centroids.
template <uint8_t bits>
KV_INLINE uint32_t quantize(const float* z, uint32_t dim, float norm, uint8_t* index) {
  const uint8x16_t low = vld1q_u8(kSquareBytes<bits>[0].data());
  const uint8x16_t high = vld1q_u8(kSquareBytes<bits>[1].data());
  const Float8 to_grid = all8(kGrid / (norm * rotation_spread(dim)));
  const uint8x8_t half = vdup_n_u8(1 << (bits - 1)), all = vdup_n_u8((1 << bits) - 1);
  uint32x4_t sum = vdupq_n_u32(0);
  for (uint32_t j = 0; j < dim; j += 8) {
    const int16x8_t grid = vmaxq_s16(to_int16(load8(z + j) * to_grid), vdupq_n_s16(-kGridMax));
    const uint8x8_t cell = cells8<bits>(grid);
    const uint8x8x2_t square = vzip_u8(vqtbl1_u8(low, cell), vqtbl1_u8(high, cell));
    sum = vpadalq_u16(sum, vreinterpretq_u16_u8(vcombine_u8(square.val[0], square.val[1])));
    const uint8x8_t negative = vreinterpret_u8_s8(vmovn_s16(vshrq_n_s16(grid, 15)));
    vst1_u8(index + j, veor_u8(vorr_u8(cell, half), vand_u8(negative, all)));
  }
  return vaddvq_u32(sum);
}

KV_INLINE VectorState encode_int8(const float* z, uint32_t dim, uint8_t* codes, uint16_t* scale) {
  const float length = rotation_norm(dim);
  Float8 top = all8(0);
  for (uint32_t j = 0; j < dim; j += 8) {
    const Float8 v = load8(z + j);
    top = max8(top, {vabsq_f32(v.a), vabsq_f32(v.b)});
  }
  *scale = int8_scale(max_lane(top), length);
  if (!scale_fits(*scale)) return VectorState::scale_overflow;
  if (*scale == 0) {
    std::memset(codes, 0, dim);
    return VectorState::ok;
  }
  const Float8 to_code = all8(1.0f / (half_to_float(*scale) * length));
  for (uint32_t j = 0; j < dim; j += 8) {
    const int8x8_t code = vqmovn_s16(to_int16(load8(z + j) * to_code));
    vst1_u8(codes + j, vreinterpret_u8_s8(vmax_s8(code, vdup_n_s8(-127))));
  }
  return VectorState::ok;
}

VectorState encode(float* x, uint32_t dim, const float* signs, uint8_t bits, uint8_t* codes,
                   uint16_t* scale) {
  if (dim % 8 != 0) return scalar_kernels().encode(x, dim, signs, bits, codes, scale);
  const float square = square_norm(x, dim);
  if (!std::isfinite(square)) return classify(x, dim);
  const float norm = std::sqrt(square);
  *scale = 0;
  if (norm < kNormMin) {
    std::memset(codes, 0, code_bytes(dim, bits));
    return VectorState::ok;
  }
  rotate(x, dim, signs);
  if (bits == 8) return encode_int8(x, dim, codes, scale);
  uint8_t index[kMaxCodedDim + kIndexSlack];
  const uint32_t square_sum = bits == 4   ? quantize<4>(x, dim, norm, index)
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

}  // namespace

const Kernels* neon_kernels() {
  static const Kernels kNeon = {"neon",
                                f16_to_f32,
                                scalar_kernels().bf16_to_f32,
                                f32_to_f16,
                                scalar_kernels().f32_to_bf16,
                                center,
                                uncenter,
                                rotate,
                                unrotate,
                                encode,
                                unpack,
                                decode,
                                order_query,
                                dot_codes,
                                score_codes,
                                dot_exact,
                                add_codes,
                                add_exact,
                                merge,
                                largest,
                                exp_weights,
                                quantize_weights};
  return &kNeon;
}

}  // namespace kv
