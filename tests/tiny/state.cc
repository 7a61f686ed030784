// See state.h.
#include "tests/tiny/state.h"

#include <bit>
#include <cstring>
#include <string>

#include "tests/tiny/qwen3_next.h"

namespace kv::tiny {

static_assert(std::endian::native == std::endian::little);

size_t state_floats(const PartSpec& part, uint32_t n) {
  if (part.kind == PartKind::state) return kRecurrentFloats;
  size_t series = part.overlap ? 2 * part.k_dim : part.k_dim;  // values per token
  size_t overlap = part.overlap && n >= part.rate ? size_t{2} * part.rate * part.k_dim : 0;
  return overlap + 2 * (n % part.rate) * series;
}

Result<std::vector<float>> load_state(KvCache& cache, uint32_t layer, uint32_t part) {
  const std::vector<uint8_t>& bytes = cache.state(layer, part);
  size_t floats = state_floats(cache.codec().model().layers[layer].parts[part], cache.tokens());
  if (floats == 0 || cache.tokens() == 0) return std::vector<float>(floats, 0.0f);
  size_t expected = sizeof(uint32_t) + floats * sizeof(float);
  std::string where = "layer " + std::to_string(layer) + " part " + std::to_string(part) + ": ";
  if (bytes.size() != expected) {
    return invalid_argument(where + "state of " + std::to_string(bytes.size()) +
                            " bytes, expected " + std::to_string(expected));
  }
  uint32_t position;
  std::memcpy(&position, bytes.data(), sizeof position);
  if (position != cache.tokens()) {
    return invalid_argument(where + "state at position " + std::to_string(position) +
                            ", expected " + std::to_string(cache.tokens()));
  }
  std::vector<float> values(floats);
  std::memcpy(values.data(), bytes.data() + sizeof position, floats * sizeof(float));
  return values;
}

void store_state(KvCache& cache, uint32_t layer, uint32_t part, const std::vector<float>& values) {
  std::vector<uint8_t> bytes;
  if (!values.empty()) {
    bytes.resize(sizeof(uint32_t) + values.size() * sizeof(float));
    uint32_t position = cache.tokens() + 1;
    std::memcpy(bytes.data(), &position, sizeof position);
    std::memcpy(bytes.data() + sizeof position, values.data(), values.size() * sizeof(float));
  }
  cache.state(layer, part) = std::move(bytes);
}

}  // namespace kv::tiny
