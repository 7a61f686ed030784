// Formula: the weights and the prompt of a tiny model, as a function of a seed and of names.
//
// The numbers of one name are SplitMix64 whose state is FNV-1a of the name plus seed * the golden
// gamma; a weight is offset + scale * u with u = (output >> 40) / 2^23 - 1, all in float, so that
// tests/scripts/make_tiny_golden.py, which fills transformers' models of the same names, gets the
// same bits. Pure, any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "proto/plane.h"

namespace kv::tiny {

class Formula {
 public:
  /// `zero_centred`: the model's norms multiply by 1 + weight (Qwen3-Next).
  explicit Formula(uint64_t seed, bool zero_centred = false)
      : seed_(seed), zero_centred_(zero_centred) {}

  /// A tensor, row-major. Its offset and scale go by its name and its last dimension.
  std::vector<float> tensor(const std::string& name, std::initializer_list<uint32_t> shape) const;
  /// Integers in [0, below), for tables.
  std::vector<uint32_t> integers(const std::string& name, uint32_t count, uint32_t below) const;
  /// Tokens in [0, 256).
  std::vector<Token> prompt(uint32_t count) const;

 private:
  std::vector<uint64_t> bits(const std::string& name, size_t count) const;

  uint64_t seed_;
  bool zero_centred_;
};

}  // namespace kv::tiny
