// Kernels: the codec's inner loops as a table of functions: a scalar reference, AVX2, AVX-512
// and, on AArch64, NEON.
//
// The scalar table is the specification: every other one gives the same bits for the same input
// (fixed order of float operations, integers elsewhere; built with -ffp-contract=off). Functions
// are pure and check nothing: pointers may be unaligned, dims are codable (codec.h) where a vector
// is coded, and multiples of 8 elsewhere. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "proto/status.h"

namespace kv {

/// Rows of values are taken in tiles of this many, aligned to absolute positions.
inline constexpr uint32_t kTileRows = 32;

/// As many queries share one unpacking of a row.
inline constexpr uint32_t kQueryGroup = 4;
/// As many queries are scored together, with as many rows at a time.
inline constexpr uint32_t kScoreGroup = 32;
inline constexpr uint32_t kScoreRows = 128;
/// As many queries' weighted sums are taken together.
inline constexpr uint32_t kSumGroup = 8;
/// Kernels read whole registers: up to this many bytes past the codes that they are given.
inline constexpr size_t kCodeSlack = 128;
/// Values of a query in a kernel set's order: whole registers per slice of a row.
constexpr uint32_t query_width(uint32_t dim) { return dim + 256; }

/// The outcome of one vector in encode_rows.
enum class VectorState : uint8_t { ok = 0, scale_overflow = 1, not_finite = 2 };

struct Kernels {
  const char* name;

  // n values; the 16-bit ones as bytes of any alignment. The roundings go to nearest even;
  // f32_to_f16 clamps to fp16's finite range first.
  void (*f16_to_f32)(const uint8_t* in, float* out, size_t n);
  void (*bf16_to_f32)(const uint8_t* in, float* out, size_t n);
  void (*f32_to_f16)(const float* in, uint8_t* out, size_t n);
  void (*f32_to_bf16)(const float* in, uint8_t* out, size_t n);

  /// In place: x[i] = (x[i] - mean[i]) * gain[i].
  void (*center)(float* x, const float* mean, const float* gain, size_t n);
  /// In place: x[i] = x[i] * inverse_gain[i] + mean[i], rounded twice.
  void (*uncenter)(float* x, const float* mean, const float* inverse_gain, size_t n);

  /// In place, one vector: x = M (signs * x), the unnormalised rotation of TURBOQUANT.md.
  void (*rotate)(float* x, uint32_t dim, const float* signs);
  /// In place, one vector: x = signs * (M x).
  void (*unrotate)(float* x, uint32_t dim, const float* signs);

  /// One vector; x (dim) is destroyed. Writes code_bytes(dim, bits) to `codes` and the fp16 scale,
  /// unless the state returned says otherwise.
  VectorState (*encode)(float* x, uint32_t dim, const float* signs, uint8_t bits, uint8_t* codes,
                        uint16_t* scale);
  /// `rows` adjacent code vectors → (rows, dim) code values: units of 1/512 (1 to 4 bit) or 1 (8).
  void (*unpack)(const uint8_t* codes, size_t rows, uint32_t dim, uint8_t bits, int16_t* out);
  /// One vector: out = signs * (M values) * factor, the transform exact, one rounding at the end.
  void (*decode)(const int16_t* values, uint32_t dim, const float* signs, float factor, float* out);

  /// A query as dot_codes takes it: out (query_width(dim)) holds q's values in the order in which
  /// this set unpacks codes, with zeros in between.
  void (*order_query)(const int16_t* q, uint32_t dim, uint8_t bits, int16_t* out);
  /// dots[i][r] = sum over dim of query i times the code values of row r, exact in int32. queries
  /// (count, query_width(dim)), `count` at most kScoreGroup; codes: `rows` (at most
  /// kScoreRows) adjacent code vectors and kCodeSlack readable bytes; dots (count, kScoreRows), of
  /// which what follows `rows` is undefined.
  void (*dot_codes)(const int16_t* queries, size_t count, const uint8_t* codes, size_t rows,
                    uint32_t dim, uint8_t bits, int32_t* dots);
  /// scores[r] = fma(dots[r], factor * scales[r], offset), scales as fp16 bytes.
  void (*score_codes)(const int32_t* dots, const uint8_t* scales, size_t rows, float factor,
                      float offset, float* scores);
  /// out[r] = q * k[r] in f32: 8 lanes of fused multiply-add, then a fixed tree. k is (rows, dim).
  void (*dot_exact)(const float* q, const float* k, size_t rows, uint32_t dim, float* out);
  /// For each of `count` (at most kSumGroup) queries i: acc[i][j] = fma(sum over kTileRows rows r
  /// of weights[i][r] * value j of row r, factors[i], acc[i][j]), the sum exact in int32. weights
  /// (count, kTileRows), codes: kTileRows adjacent code vectors and kCodeSlack readable bytes,
  /// acc (count, stride).
  void (*add_codes)(const int16_t* weights, const float* factors, size_t count,
                    const uint8_t* codes, uint32_t dim, uint8_t bits, float* acc, size_t stride);
  /// acc[j] = fma(weights[r], v[r][j], acc[j]) for r = 0 … rows - 1 in order. v is (rows, dim).
  void (*add_exact)(const float* weights, const float* v, size_t rows, uint32_t dim, float* acc);

  /// acc[j] = fma(x[j], b, acc[j] * a). n is a multiple of 8.
  void (*merge)(float* acc, float a, const float* x, float b, size_t n);

  /// The largest of n (a multiple of 8) values.
  float (*largest)(const float* x, size_t n);
  /// x[i] = exp(x[i] - max), 0 below max - 87, over n (a multiple of 8) values; returns their sum
  /// in 8 lanes and a fixed tree. `max` is finite and no x[i] is above it.
  float (*exp_weights)(float* x, size_t n, float max);
  /// With p = w * scales over kTileRows values >= 0: out[r] = round(p[r] * 32767 / max p); returns
  /// max p / 32767, or 0 (out all zero) if max p < kWeightMin.
  float (*quantize_weights)(const float* w, const float* scales, int16_t* out);
};

const Kernels& scalar_kernels();
/// Null if this machine lacks AVX2, FMA or F16C.
const Kernels* avx2_kernels();
/// Null if this machine lacks AVX-512 F, BW, DQ, VL, VBMI or VNNI, or what the AVX2 set needs.
const Kernels* avx512_kernels();
/// Null off AArch64, where every processor has them.
const Kernels* neon_kernels();
/// Every set that this machine can run, the scalar one first.
std::vector<const Kernels*> available_kernels();
/// The best of this machine, or the one that the environment variable KV_KERNELS names (scalar,
/// avx2, avx512, neon). Returns: invalid_argument for an unknown name, unsupported for one this
/// machine lacks.
Result<const Kernels*> select_kernels();

}  // namespace kv
