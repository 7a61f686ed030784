// Token chunks: packed tokens compared with plain ones, 64 at a time, by the fastest way that this
// processor has. The forms are TokenRun's (token_run.cc says where each bit lies). Pure functions,
// any thread.
#pragma once

#include <cstdint>

#include "proto/plane.h"

namespace kv {

inline constexpr uint32_t kChunkTokens = 64;

/// A way to compare. Functions return the number of equal whole chunks, from the first of `chunks`.
struct ChunkCompare {
  /// 16 bits a token: chunks * 128 bytes at `low`.
  uint32_t (*bits16)(const uint8_t* low, const Token* other, uint32_t chunks);
  /// 20 bits a token: as bits16, and chunks * 32 bytes at `high`.
  uint32_t (*bits20)(const uint8_t* low, const uint8_t* high, const Token* other, uint32_t chunks);
};

extern const ChunkCompare kPlainChunks;
/// Null where the processor has no AVX2.
const ChunkCompare* avx2_chunks();
/// The fastest that this processor has.
const ChunkCompare& best_chunks();

}  // namespace kv
