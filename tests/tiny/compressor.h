// Compressor: one row per `rate` tokens, as DeepSeek-V4 makes them for long range.
//
// Each token gives values and gates; the row of a complete group is, per channel, their sum
// weighted by the softmax of gate + position bias, normalised and rotated at the group's first
// position. With overlap a token gives two such series (A, B): the row takes B of its own group and
// A of the one before.
//
// The carry at n: with overlap and n >= rate, values (rate, dim) and biased gates (rate, dim) of
// the last complete group's series A; then for each of the n mod rate tokens after it its values
// and its gates (2 * dim each with overlap, else dim). Empty if there is nothing of either.
#pragma once

#include "tests/tiny/tiny_model.h"

namespace kv::tiny {

class Compressor {
 public:
  Compressor(const Formula& formula, const std::string& name, uint32_t rate, uint32_t dim,
             bool overlap);
  /// Kind pooled, one storage.
  PartSpec part() const;
  /// Takes the token at cache.tokens() in; appends a row to the part if its group is complete.
  /// x (kWidth). Returns: as Network::step.
  Status add(uint32_t layer, uint32_t part, const float* x, const Rope& rope, KvCache& cache) const;

 private:
  std::vector<float> row_of(const std::vector<float>& carry, bool first_group) const;
  std::vector<float> next_overlap(const float* group) const;

  uint32_t rate_, dim_, wide_;  // wide_: values per token
  bool overlap_;
  Linear values_, gates_;
  std::vector<float> bias_, norm_;  // (rate, wide), (dim)
};

}  // namespace kv::tiny
