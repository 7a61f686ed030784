// Demands: the rows and states of a cache of exactly n tokens, part by part. restorable(n)
// (index/restorable.h) asks for them, a store at n must cover them, an engine takes them over at n.
//
//   full, latent: rows [0, n)         window{W, keep}: rows [max(0, n-W+1), n), [0, min(keep, n))
//   chunk{C}: rows [floor(n/C)*C, n)  state, opaque: a snapshot at n
//   pooled{r, overlap}: rows [0, floor(n/r)) and the carry at n (empty, so present, where r divides
//   n and there is no overlap or n < r)
// Pure functions, any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/model.h"

namespace kv {

/// Rows [first, end), absolute (pooled: in rows of `rate` tokens).
struct RowRange {
  uint32_t first = 0, end = 0;
  bool empty() const { return first >= end; }
  bool operator==(const RowRange&) const = default;
};

/// Rows that `part` needs at n: for windows the sinks first, then the newest rows, not overlapping;
/// none for state and opaque.
std::vector<RowRange> demanded_rows(const PartSpec& part, uint32_t n);
/// Bytes in fp16 of the rows that a cache of n tokens holds (of windows and chunks no others): what
/// ratios shown to people are of.
uint64_t fp16_rows_bytes(const ModelSpec& model, uint32_t n);
/// True if `part` needs a carry with bytes at n (pooled only).
bool demands_carry(const PartSpec& part, uint32_t n);
/// True if `part` needs a snapshot at n (state and opaque, n > 0).
bool demands_snapshot(const PartSpec& part, uint32_t n);

}  // namespace kv
