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

/// Rounds of chance that cost a sanitizer's build ten times as much are shared: of those that one
/// `tools/test --all` runs, `asan` and `tsan` run a sixth each, release all others.
enum class Build : uint8_t { asan, tsan, release };
#if defined(__SANITIZE_ADDRESS__)
inline constexpr Build kBuild = Build::asan;
#elif defined(__SANITIZE_THREAD__)
inline constexpr Build kBuild = Build::tsan;
#else
inline constexpr Build kBuild = Build::release;
#endif
inline int shared_rounds(int all) {
  return soaked(kBuild == Build::release ? all - 2 * (all / 6) : all / 6);
}
/// The first of this build's seeds, where all builds together walk 1 … all.
constexpr uint32_t first_seed(int all) {
  return 1 + static_cast<uint32_t>(all / 6) * static_cast<uint32_t>(kBuild);
}

/// The step through a long list of cases: every `stride`-th in CI, each one in a soak.
inline uint64_t soaked_stride(uint64_t stride) {
  return std::getenv("KV_SOAK") != nullptr ? 1 : stride;
}

}  // namespace kv
