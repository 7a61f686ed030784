// The scalar kernels: the specification of the codec's arithmetic, written to be read.
//
// Every float operation's order is part of the format or of the attention result; the other kernel
// sets reproduce it bit for bit. Pure functions, any thread.
#include <algorithm>
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

uint16_t read_half(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

void f16_to_f32(const uint8_t* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = half_to_float(read_half(in + 2 * i));
}

void bf16_to_f32(const uint8_t* in, float* out, size_t n) {
  for (size_t i = 0; i < n; ++i) out[i] = bf16_to_float(read_half(in + 2 * i));
}

void f32_to_f16(const float* in, uint8_t* out, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    float x = in[i] > kHalfMax ? kHalfMax : in[i] < -kHalfMax ? -kHalfMax : in[i];
    uint16_t h = float_to_half(x);
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
  for (size_t i = 0; i < n; ++i) x[i] = (x[i] - mean[i]) * gain[i];
}

void uncenter(float* x, const float* mean, const float* inverse_gain, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = x[i] * inverse_gain[i] + mean[i];
}

// x = M x: a butterfly per stride of the power of two, then p x - 2 (sum of the p values) for every
// odd prime factor p. M is symmetric; for powers of two it is Walsh-Hadamard in Sylvester order.
void transform(float* x, uint32_t dim) {
  const RotationShape shape = rotation_shape(dim);
  for (uint32_t stride = 1; stride < dim;
       stride *= stride == shape.stripe / 2 ? 2 * shape.odd : 2) {
    for (uint32_t block = 0; block < dim; block += 2 * stride) {
      for (uint32_t j = block; j < block + stride; ++j) {
        float a = x[j], b = x[j + stride];
        x[j] = a + b;
        x[j + stride] = a - b;
      }
    }
  }
  for_each_odd_factor(shape, [&](uint32_t p, uint32_t stride) {
    for (uint32_t block = 0; block < dim; block += p * stride) {
      for (uint32_t j = block; j < block + stride; ++j) {
        float sum = x[j];
        for (uint32_t i = 1; i < p; ++i) sum += x[j + i * stride];
        const float twice = sum + sum, factor = static_cast<float>(p);
        for (uint32_t i = 0; i < p; ++i) {
          x[j + i * stride] = std::fma(x[j + i * stride], factor, -twice);
        }
      }
    }
  });
}

void rotate(float* x, uint32_t dim, const float* signs) {
  for (uint32_t j = 0; j < dim; ++j) x[j] *= signs[j];
  transform(x, dim);
}

void unrotate(float* x, uint32_t dim, const float* signs) {
  transform(x, dim);
  for (uint32_t j = 0; j < dim; ++j) x[j] *= signs[j];
}

// Sum of squares in 32 lanes: value j goes to lane j % 32; lanes i, i + 8, i + 16, i + 24 are then
// joined as (0 + 8) + (16 + 24), and the 8 that are left by the tree.
float square_norm(const float* x, uint32_t dim) {
  float lanes[32] = {};
  for (uint32_t j = 0; j < dim; ++j) lanes[j % 32] = std::fma(x[j], x[j], lanes[j % 32]);
  float joined[8];
  for (int i = 0; i < 8; ++i) {
    joined[i] = (lanes[i] + lanes[i + 8]) + (lanes[i + 16] + lanes[i + 24]);
  }
  return sum_lanes(joined);
}

// Indices of rotated values; returns the sum of their squared centroids.
uint32_t quantize(const float* z, uint32_t dim, float norm, uint8_t bits, uint8_t* index) {
  const HalfCodebook& book = half_codebook(bits);
  const float to_grid = kGrid / (norm * rotation_spread(dim));
  const uint32_t half = static_cast<uint32_t>(book.cells);
  uint32_t square_sum = 0;
  for (uint32_t j = 0; j < dim; ++j) {
    int32_t u = static_cast<int32_t>(std::lrint(z[j] * to_grid));
    u = std::clamp(u, -kGridMax, kGridMax);
    int32_t magnitude = std::abs(u);
    uint32_t cell = 0;
    for (uint32_t k = 0; k + 1 < half; ++k) cell += magnitude > book.threshold[k];
    square_sum += book.square[cell];
    index[j] = static_cast<uint8_t>(u >= 0 ? half + cell : half - 1 - cell);
  }
  return square_sum;
}

VectorState encode_int8(const float* z, uint32_t dim, uint8_t* codes, uint16_t* scale) {
  const float length = rotation_norm(dim);
  float absmax = 0;
  for (uint32_t j = 0; j < dim; ++j) absmax = std::max(absmax, std::fabs(z[j]));
  *scale = int8_scale(absmax, length);
  if (!scale_fits(*scale)) return VectorState::scale_overflow;
  if (*scale == 0) {
    std::memset(codes, 0, dim);
    return VectorState::ok;
  }
  const float to_code = 1.0f / (half_to_float(*scale) * length);
  for (uint32_t j = 0; j < dim; ++j) {
    int32_t code = static_cast<int32_t>(std::lrint(z[j] * to_code));
    codes[j] = static_cast<uint8_t>(std::clamp(code, -127, 127));
  }
  return VectorState::ok;
}

VectorState encode(float* x, uint32_t dim, const float* signs, uint8_t bits, uint8_t* codes,
                   uint16_t* scale) {
  const size_t bytes = code_bytes(dim, bits);
  const float square = square_norm(x, dim);
  if (!std::isfinite(square)) return classify(x, dim);
  const float norm = std::sqrt(square);
  *scale = 0;
  if (norm < kNormMin) {
    std::memset(codes, 0, bytes);
    return VectorState::ok;
  }
  rotate(x, dim, signs);
  if (bits == 8) return encode_int8(x, dim, codes, scale);
  uint8_t index[kMaxCodedDim + kIndexSlack] = {};
  const uint32_t square_sum = quantize(x, dim, norm, bits, index);
  *scale = corrected_scale(norm, square_sum);
  if (!scale_fits(*scale)) return VectorState::scale_overflow;
  if (*scale == 0) {
    std::memset(codes, 0, bytes);
  } else {
    pack_indices(index, dim, bits, codes);
  }
  return VectorState::ok;
}

void unpack(const uint8_t* codes, size_t rows, uint32_t dim, uint8_t bits, int16_t* out) {
  const size_t bytes = code_bytes(dim, bits);
  for (size_t r = 0; r < rows; ++r, codes += bytes, out += dim) {
    for (uint32_t j = 0; j < dim; ++j) {
      out[j] = bits == 8 ? static_cast<int8_t>(codes[j])
                         : code_value(bits, index_at(codes, dim, bits, j));
    }
  }
}

void decode(const int16_t* values, uint32_t dim, const float* signs, float factor, float* out) {
  for (uint32_t j = 0; j < dim; ++j) out[j] = values[j];
  transform(out, dim);
  for (uint32_t j = 0; j < dim; ++j) out[j] = out[j] * (signs[j] * factor);
}

void order_query(const int16_t* q, uint32_t dim, uint8_t, int16_t* out) {
  std::copy_n(q, dim, out);
  std::fill_n(out + dim, query_width(dim) - dim, int16_t{0});
}

void dot_codes(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows,
               uint32_t dim, uint8_t bits, int32_t* dots) {
  int16_t k[kMaxCodedDim];
  for (size_t r = 0; r < rows; ++r, codes += code_bytes(dim, bits)) {
    unpack(codes, 1, dim, bits, k);
    for (size_t i = 0; i < count; ++i) {
      const int16_t* q = queries + i * query_width(dim);
      int32_t sum = 0;
      for (uint32_t j = 0; j < dim; ++j) sum += int32_t{q[j]} * k[j];
      dots[i * kScoreRows + r] = sum;
    }
  }
}

void score_codes(const int32_t* dots, const uint8_t* scales, size_t rows, float factor,
                 float offset, float* scores) {
  for (size_t r = 0; r < rows; ++r) {
    float scale = factor * half_to_float(read_half(scales + 2 * r));
    scores[r] = std::fma(static_cast<float>(dots[r]), scale, offset);
  }
}

void dot_exact(const float* q, const float* k, size_t rows, uint32_t dim, float* out) {
  for (size_t r = 0; r < rows; ++r, k += dim) {
    float lanes[8] = {};
    for (uint32_t j = 0; j < dim; ++j) lanes[j % 8] = std::fma(q[j], k[j], lanes[j % 8]);
    out[r] = sum_lanes(lanes);
  }
}

void add_codes(const int16_t* weights, const float* factors, size_t count, const uint8_t* codes,
               uint32_t dim, uint8_t bits, float* acc, size_t stride) {
  int16_t v[kTileRows * kMaxCodedDim];
  unpack(codes, kTileRows, dim, bits, v);
  for (size_t i = 0; i < count; ++i, weights += kTileRows, acc += stride) {
    for (uint32_t j = 0; j < dim; ++j) {
      int32_t sum = 0;
      for (uint32_t r = 0; r < kTileRows; ++r) sum += int32_t{weights[r]} * v[r * dim + j];
      acc[j] = std::fma(static_cast<float>(sum), factors[i], acc[j]);
    }
  }
}

void add_exact(const float* weights, const float* v, size_t rows, uint32_t dim, float* acc) {
  for (size_t r = 0; r < rows; ++r, v += dim) {
    for (uint32_t j = 0; j < dim; ++j) acc[j] = std::fma(weights[r], v[j], acc[j]);
  }
}

void merge(float* acc, float a, const float* x, float b, size_t n) {
  for (size_t j = 0; j < n; ++j) acc[j] = std::fma(x[j], b, acc[j] * a);
}

float largest(const float* x, size_t n) { return *std::max_element(x, x + n); }

// exp(x) for -87 <= x <= 0: Cephes' expf, every step a fused multiply-add.
float exp_one(float x) {
  float n = std::nearbyint(x * 1.44269504088896341f);
  float r = std::fma(n, -0.693359375f, x);
  r = std::fma(n, 2.12194440e-4f, r);
  float p = 1.9875691500e-4f;
  p = std::fma(p, r, 1.3981999507e-3f);
  p = std::fma(p, r, 8.3334519073e-3f);
  p = std::fma(p, r, 4.1665795894e-2f);
  p = std::fma(p, r, 1.6666665459e-1f);
  p = std::fma(p, r, 5.0000001201e-1f);
  p = std::fma(p, r * r, r) + 1.0f;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

float exp_weights(float* x, size_t n, float max) {
  float lanes[8] = {};
  for (size_t i = 0; i < n; ++i) {
    float d = x[i] - max;
    x[i] = d >= kExpMin ? exp_one(d) : 0.0f;
    lanes[i % 8] += x[i];
  }
  return sum_lanes(lanes);
}

float quantize_weights(const float* w, const float* scales, int16_t* out) {
  float products[kTileRows], top = 0;
  for (uint32_t r = 0; r < kTileRows; ++r) {
    products[r] = w[r] * scales[r];
    top = std::max(top, products[r]);
  }
  if (!(top >= kWeightMin)) {
    std::fill_n(out, kTileRows, int16_t{0});
    return 0;
  }
  const float to_int = 32767.0f / top;
  for (uint32_t r = 0; r < kTileRows; ++r) {
    out[r] = static_cast<int16_t>(std::min<long>(std::lrint(products[r] * to_int), 32767));
  }
  return top * (1.0f / 32767.0f);
}

constexpr Kernels kScalar = {"scalar",    f16_to_f32,      bf16_to_f32, f32_to_f16, f32_to_bf16,
                             center,      uncenter,        rotate,      unrotate,   encode,
                             unpack,      decode,          order_query, dot_codes,  score_codes,
                             dot_exact,   add_codes,       add_exact,   merge,      largest,
                             exp_weights, quantize_weights};

}  // namespace

const Kernels& scalar_kernels() { return kScalar; }

}  // namespace kv
