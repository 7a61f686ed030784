// The sign sequence of the rotation: codec/TURBOQUANT.md, "Signs".
#include "codec/turboquant.h"

namespace kv {
namespace {

uint64_t splitmix64(uint64_t& state) {
  state += 0x9E3779B97F4A7C15ull;
  uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<float> rotation_signs(uint64_t rotation_seed, uint32_t dim) {
  uint64_t state = rotation_seed ^ (uint64_t{dim} << 32);
  std::vector<float> signs(dim);
  uint64_t word = 0;
  for (uint32_t j = 0; j < dim; ++j) {
    if (j % 64 == 0) word = splitmix64(state);
    signs[j] = (word >> (j % 64)) & 1 ? -1.0f : 1.0f;
  }
  return signs;
}

}  // namespace kv
