// For the engine's kernel tests: every set that this machine can run, and values to feed them.
#pragma once

#include <random>
#include <vector>

#include "engine/kernels.h"

namespace kv {

/// The scalar one first.
inline std::vector<const EngineKernels*> kernel_sets() {
  std::vector<const EngineKernels*> sets = {&scalar_engine_kernels()};
  for (auto* set : {avx2_engine_kernels(), avx512_engine_kernels()}) {
    if (set != nullptr) sets.push_back(set);
  }
  return sets;
}

inline std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

}  // namespace kv
