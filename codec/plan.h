// Plan: from a person's settings to a profile, and what became of them, part by part.
//
// Pure functions, any thread. What may be coded: engine/MODELS.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/model.h"
#include "proto/profile.h"
#include "proto/status.h"

namespace kv {

/// Other bits for one layer than the model-wide ones.
struct LayerBits {
  uint32_t layer = 0;
  uint8_t k_bits = 0;
  uint8_t v_bits = 0;
};

struct CodingSettings {
  uint8_t k_bits = 4;  ///< 0 raw, 1 to 4 or 8
  uint8_t v_bits = 4;
  uint32_t exact_tokens = 4;
  uint32_t block_tokens = 256;
  uint32_t raw_first_layers = 0;  ///< counted over layers that have a codable part
  uint32_t raw_last_layers = 0;
  DType raw_dtype = DType::f16;
  PrefillMode prefill = PrefillMode::exact;
  std::vector<LayerBits> layers{};  ///< win over the model-wide bits and over raw first/last layers
};

/// The plain profile: means 0, gains 1. Full, window and chunk parts with separate K and V get the
/// settings' bits, everything else stays raw.
/// Returns: invalid_argument naming the setting and its limit; unsupported naming layer, part, side
/// and head_dim where bits were asked for and the codec lacks that dim.
Result<Profile> plain_profile(const ModelSpec& model, const CodingSettings& settings);

/// The coding asked for and the one in force, of one side of one part.
struct PartReport {
  uint32_t layer = 0;
  uint32_t part = 0;
  PartKind kind = PartKind::full;
  Side side = Side::k;
  uint8_t requested_bits = 0;
  uint8_t active_bits = 0;  ///< 0: raw
  std::string reason;       ///< empty where the two agree, else why, e.g. "latent: never coded"
};
/// One line per layer, part and side (state and opaque parts: one line, side `other`).
/// `profile` fits `model` (validate).
std::vector<PartReport> report(const ModelSpec& model, const Profile& profile);

/// "raw", "tq4", "int8", "tc".
std::string coding_name(uint8_t bits);
/// Notes on layers, by ascending layer.
struct LayerLine {
  uint32_t layer = 0;
  std::string text;
};
/// Each text once, with all layers that say it: "layers 0,2-5 TEXT", in order of first appearance.
std::vector<std::string> lines_by_text(const std::vector<LayerLine>& said);

}  // namespace kv
