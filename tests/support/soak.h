// How often the tests of chance repeat themselves: once in CI, KV_SOAK times in a soak.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace kv {

inline int soaked(int rounds) {
  const char* text = std::getenv("KV_SOAK");
  return rounds * (text != nullptr ? std::max(1, std::atoi(text)) : 1);
}

/// The step through a long list of cases: every `stride`-th in CI, each one in a soak.
inline uint64_t soaked_stride(uint64_t stride) {
  return std::getenv("KV_SOAK") != nullptr ? 1 : stride;
}

}  // namespace kv
