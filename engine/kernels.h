// EngineKernels: products of packed weights (panels.h) with rows of float activations, and those
// with bands (bands.h): scalar, AVX2 and AVX-512.
//
// An output depends on its weight row and its row of activations alone, bit for bit, however many
// of either are computed together; every set gives the same bits: a multiplication and the addition
// behind it are fused, everywhere. multiply: within each group of one scale, weights as they are
// (values or integers) times activations, even columns and odd ones in two sums; these added, times
// the scale, added to the output. Of weights of four and five bits: integer sums of products with
// rounded activations (rounded.h), that of their highest bytes as fp32 times 65536, plus that of
// their rest as fp32, times the product of both scales, added to the output, then offset times the
// group's sum. Pure, unaligned pointers allowed, nothing checked. Any thread.
#pragma once

#include <boost/align/aligned_allocator.hpp>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "codec/kernels.h"
#include "engine/bands.h"
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
  /// Of RoundedRows::round() (rounded.h), one row behind the other; or null.
  const int8_t* codes = nullptr;
  const float *scales = nullptr, *sums = nullptr;
};

/// The functions of one tensor type.
struct TypeKernels {
  /// y[b * y_stride + 16 * p + r] = row r of panel p times row b of x, for `count` panels `stride`
  /// bytes apart; of panel_integers() with rounded activations, which x then has.
  void (*multiply)(const uint8_t* panels, uint64_t stride, uint32_t count, uint32_t columns,
                   const Activations& x, float* y, size_t y_stride);
  /// The same as products with bands (bands.h) of what widen gives: for a few rows of activations,
  /// none of them rounded, as it leaves the bands out.
  void (*chain)(const uint8_t* panels, uint64_t stride, uint32_t count, uint32_t columns,
                const Activations& x, float* y, size_t y_stride);
  /// Groups [first, end) of a panel as half of a band (bands.h): out (32 * (end - first),
  /// kBandColumns), of which kPanelRows are written. Every set gives the same bits.
  void (*widen)(const uint8_t* panel, uint32_t first, uint32_t end, float* out);
};

struct EngineKernels {
  const char* name;
  uint32_t few_rows;  ///< of activations: up to so many TypeKernels::chain is quicker than a band
  TypeKernels (*of)(TensorType type);
  /// rounded.h. Every set gives the same bits.
  void (*round)(const float* x, uint32_t columns, int8_t* codes, float* scales, float* sums);
  BandKernel band_product;
  TransposeKernel transpose;
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
