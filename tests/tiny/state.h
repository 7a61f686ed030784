// States and carries of the tiny models as bytes: the position (u32), then floats, little-endian;
// no bytes where there are no floats.
#pragma once

#include <vector>

#include "engine/kv_cache.h"

namespace kv::tiny {

/// Floats of a part's state at position n. A pooled part's carry: tests/tiny/compressor.h; a
/// recurrent state: tests/tiny/qwen3_next.h.
size_t state_floats(const PartSpec& part, uint32_t n);
/// The values of this part's state at cache.tokens(), zeros at position 0. Returns:
/// invalid_argument naming layer, part, expected and given (size, position).
Result<std::vector<float>> load_state(KvCache& cache, uint32_t layer, uint32_t part);
/// Puts the state after the token at cache.tokens() in its place.
void store_state(KvCache& cache, uint32_t layer, uint32_t part, const std::vector<float>& values);

}  // namespace kv::tiny
