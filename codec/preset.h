// Presets: a word for how K and V are coded, accepted wherever a person sets a coding.
//
// Pure functions and constants, any thread. What each costs and keeps on real models: `cachectl
// quality`, bench/RESULTS.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "proto/model.h"
#include "proto/profile.h"
#include "proto/status.h"

namespace kv {

struct Preset {
  const char* name;
  uint8_t k_bits;  ///< 0 raw, 1 to 4 or 8
  uint8_t v_bits;
};

/// From the most exact to the smallest, then `auto`.
std::span<const Preset> presets();
/// Also takes the older names `raw` (lossless) and `int8` (tq8). Returns: invalid_argument naming
/// all presets.
Result<Preset> find_preset(std::string_view name);
/// The first preset with these bits, "tc" for transforms, else "K tq8 V tq2".
std::string preset_name(uint8_t k_bits, uint8_t v_bits);

/// Bytes of the first `tokens` rows of every part with rows, codes with their scales and exact
/// rows, over the same rows in fp16; of transforms the bytes expected. `profile` fits `model`,
/// tokens > 0.
double stored_ratio(const ModelSpec& model, const Profile& profile, uint32_t tokens);

}  // namespace kv
