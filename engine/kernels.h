// EngineKernels: products of packed weight rows with rows of float activations: scalar, AVX2 and
// AVX-512.
//
// An output depends on its weight row and its row of activations alone, bit for bit, however many
// of either are computed together. `multiply`: every weight as fp32, its product added to lane
// column % 16 in ascending order of columns, one tree over the lanes at the end. AVX2 and AVX-512
// fuse multiplication and addition and agree bit for bit; the scalar set fuses nothing.
// `multiply_integers`, where the machine multiplies 16-bit integers twice as fast (AVX-512 VNNI):
// a group's products are summed exactly, then scaled and added in ascending order of groups;
// 16-bit activations differ from fp32 ones by 2^-16 of their group's largest. Pure, unaligned
// pointers allowed, nothing checked. Any thread.
#pragma once

#include <boost/align/aligned_allocator.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/kernels.h"
#include "engine/gguf.h"

namespace kv {

/// Rows of activations that begin at a cache line and, of a multiple of 16 values each, stay at
/// one: where they don't, every load takes two, and a product of 8 rows took 1.7 times as long.
using Floats = std::vector<float, boost::alignment::aligned_allocator<float, 64>>;

/// `count` rows of fp32 values, at least 1, `stride` values apart.
struct Activations {
  const float* x = nullptr;
  size_t stride = 0;
  uint32_t count = 1;
};

/// Rows of activations as integers: value = q * scale, one scale to a group of 32 columns.
struct IntegerActivations {
  const int16_t* q = nullptr;    ///< (count, columns); order within a group: activation_order
  const float* scale = nullptr;  ///< (count, columns / 32)
  const float* sum = nullptr;    ///< (count, columns / 32): of a group's values
  uint32_t count = 1;
};

/// Where column `j` of a group stands among its integers: columns whose weights lie in the same
/// halves of packed 32-bit words stand together.
constexpr uint32_t activation_order(uint32_t j) { return j / 4 * 4 + (j % 2) * 2 + j % 4 / 2; }

/// The functions of one tensor type.
struct TypeKernels {
  /// y[b * y_stride + r] = weight row r times row b of x, for `rows` weight rows `stride` bytes
  /// apart; columns a multiple of 32, of 256 for Q4_K and Q6_K.
  void (*multiply)(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                   const Activations& x, float* y, size_t y_stride);
  /// One weight row as fp32: out (columns). Every set gives the same bits.
  void (*widen)(const uint8_t* w, uint32_t columns, float* out);
  /// As multiply, of activations as integers. Null: the set has none for this type.
  void (*multiply_integers)(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns,
                            const IntegerActivations& x, float* y, size_t y_stride) = nullptr;
};

/// One row of `columns` activations as integers of one: q, scale and sum as in IntegerActivations.
/// |q| <= 32767, to the nearest, even ones first; a group below 2^-100 is 0, one with a value that
/// is not finite has a NaN for scale and sum, and so has every product with it.
using ToIntegers = void (*)(const float* x, uint32_t columns, int16_t* q, float* scale, float* sum);

struct EngineKernels {
  const char* name;
  TypeKernels (*of)(TensorType type);
  ToIntegers to_integers = nullptr;  ///< null: no type has multiply_integers
};

const EngineKernels& scalar_engine_kernels();
/// Null if this machine lacks AVX2, FMA or F16C.
const EngineKernels* avx2_engine_kernels();
/// Null if it lacks those, or what avx512_kernels() of the codec wants.
const EngineKernels* avx512_engine_kernels();
/// The set that goes with the codec's choice (KV_KERNELS, codec/kernels.h); chosen once.
const EngineKernels& engine_kernels();
/// The codec's kernels of the same choice.
const Kernels& engine_codec_kernels();

}  // namespace kv
