// The table of presets. See preset.h.
#include "codec/preset.h"

#include <algorithm>

#include "proto/end_price.h"
#include "proto/plane.h"

namespace kv {
namespace {

constexpr Preset kPresets[] = {{"lossless", 0, 0}, {"tq8", 8, 8}, {"tq84", 8, 4}, {"tq4", 4, 4},
                               {"tq3", 3, 3},      {"tq2", 2, 2}, {"auto", 8, 4}};
constexpr Preset kOlderNames[] = {{"raw", 0, 0}, {"int8", 8, 8}};

const char* preset_of(uint8_t k_bits, uint8_t v_bits) {
  for (const Preset& p : kPresets) {
    if (p.k_bits == k_bits && p.v_bits == v_bits) return p.name;
  }
  return nullptr;
}

}  // namespace

std::span<const Preset> presets() { return kPresets; }

Result<Preset> find_preset(std::string_view name) {
  std::string list;
  for (const Preset& p : kPresets) {
    if (p.name == name) return p;
    list += (list.empty() ? "" : ", ") + std::string(p.name);
  }
  for (const Preset& p : kOlderNames) {
    if (p.name == name) return p;
  }
  return invalid_argument("\"" + std::string(name) + "\": expected one of " + list);
}

std::string preset_name(uint8_t k_bits, uint8_t v_bits) {
  if (const char* both = preset_of(k_bits, v_bits)) return both;
  if (k_bits == kTransformWord && v_bits == kTransformWord) return "tc";
  auto side = [](uint8_t bits) {
    if (bits == kTransformWord) return std::string("tc");
    const char* name = preset_of(bits, bits);
    return name ? std::string(name) : std::to_string(bits) + " bits";
  };
  return "K " + side(k_bits) + " V " + side(v_bits);
}

double stored_ratio(const ModelSpec& model, const Profile& profile, uint32_t tokens) {
  double stored = 0, whole = 0;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      const double rows = part.kind == PartKind::pooled ? tokens / part.rate : tokens;
      for (const SideSpec& side : sides_of(part)) {
        const PartCoding& coding = profile.coding(l, p);
        const uint8_t word = coding.word(side.side);
        const double exact = word == 0 ? rows : std::min<double>(rows, profile.exact_tokens);
        const double row = 2.0 * side.heads * side.dim;
        const double coded =
            word == kTransformWord
                ? profile.transforms->row_bytes[coding.transform(side.side)]
                : static_cast<double>(coded_rows_bytes(profile, coding, side, DType::f16, 1));
        stored += exact * row + (rows - exact) * coded;
        whole += rows * row;
      }
    }
  }
  return whole > 0 ? stored / whole : 1;
}

}  // namespace kv
