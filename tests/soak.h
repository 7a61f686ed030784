// How often the tests of chance repeat themselves: once in CI, KV_SOAK times in a soak.
#pragma once

#include <algorithm>
#include <cstdlib>

namespace kv {

inline int soaked(int rounds) {
  const char* text = std::getenv("KV_SOAK");
  return rounds * (text != nullptr ? std::max(1, std::atoi(text)) : 1);
}

}  // namespace kv
