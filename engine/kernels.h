// EngineKernels: the products of packed weight rows with float activations, scalar and AVX2.
//
// y[r] of row r sums in an order fixed by the kernel set: groups of 32 in ascending order, 8 lanes,
// one tree at the end. Pure, unaligned pointers allowed, nothing checked. Any thread.
#pragma once

#include <cstdint>

#include "codec/kernels.h"
#include "engine/gguf.h"

namespace kv {

/// The functions of one tensor type.
struct TypeKernels {
  /// y (rows): `rows` weight rows, `stride` bytes apart, times x (columns); columns a multiple of
  /// 32, of 256 for Q4_K and Q6_K. group_sums: of each 32 values of x.
  void (*rows)(const uint8_t* w, uint64_t stride, uint32_t rows, uint32_t columns, const float* x,
               const float* group_sums, float* y);
  /// One weight row as fp32: out (columns). Every set gives the same bits.
  void (*widen)(const uint8_t* w, uint32_t columns, float* out);
};

struct EngineKernels {
  const char* name;
  TypeKernels f32, f16, q4_1, q5_0, q8_0, q4_k, q6_k;
  /// Sums of each 32 values: out (columns / 32).
  void (*group_sums)(const float* x, uint32_t columns, float* out);

  const TypeKernels& of(TensorType type) const;
};

const EngineKernels& scalar_engine_kernels();
/// Null if this machine lacks AVX2, FMA or F16C.
const EngineKernels* avx2_engine_kernels();
/// The set that goes with the codec's choice (KV_KERNELS, codec/kernels.h); chosen once.
const EngineKernels& engine_kernels();
/// The codec's kernels of the same choice.
const Kernels& engine_codec_kernels();

}  // namespace kv
