// From settings to a plain profile, and the report of what is in force.
#include "codec/plan.h"

#include <algorithm>

#include "codec/codec.h"
#include "proto/limits.h"

namespace kv {
namespace {

bool may_code(const PartSpec& part) {
  return part.v_dim > 0 && (part.kind == PartKind::full || part.kind == PartKind::window ||
                            part.kind == PartKind::chunk);
}

Status check_bits(uint8_t bits, const std::string& what) {
  if (valid_bits(bits)) return {};
  return invalid_argument("coding: " + what + " " + std::to_string(bits) + ", " + kValidBits);
}

Status check_settings(const ModelSpec& model, const CodingSettings& s) {
  KV_RETURN_IF_ERROR(check_bits(s.k_bits, "k_bits"));
  KV_RETURN_IF_ERROR(check_bits(s.v_bits, "v_bits"));
  if (s.block_tokens == 0 || s.block_tokens > kMaxBlockTokens) {
    return invalid_argument("coding: block_tokens " + std::to_string(s.block_tokens) +
                            " outside 1.." + std::to_string(kMaxBlockTokens));
  }
  if (s.exact_tokens > kMaxTokens) {
    return invalid_argument("coding: exact_tokens over " + std::to_string(kMaxTokens));
  }
  for (const LayerBits& layer : s.layers) {
    const std::string name = "layer " + std::to_string(layer.layer) + " ";
    if (layer.layer >= model.layers.size()) {
      return invalid_argument("coding: " + name + "given, the model has " +
                              std::to_string(model.layers.size()));
    }
    KV_RETURN_IF_ERROR(check_bits(layer.k_bits, name + "k_bits"));
    KV_RETURN_IF_ERROR(check_bits(layer.v_bits, name + "v_bits"));
  }
  return {};
}

// Bits of a layer's codable parts. `ordinal` counts layers that have one, `total` is their number.
LayerBits bits_of(const CodingSettings& s, uint32_t layer, uint32_t ordinal, uint32_t total) {
  for (const LayerBits& other : s.layers) {
    if (other.layer == layer) return other;
  }
  const bool raw = ordinal < s.raw_first_layers || total - ordinal <= s.raw_last_layers;
  return raw ? LayerBits{layer, 0, 0} : LayerBits{layer, s.k_bits, s.v_bits};
}

Status check_dim(uint8_t bits, uint32_t dim, uint32_t layer, size_t part, Side side) {
  if (bits == 0 || codable_dim(dim)) return {};
  return unsupported("coding: layer " + std::to_string(layer) + " part " + std::to_string(part) +
                     " " + to_string(side) + ": head_dim " + std::to_string(dim) +
                     " can't be coded (" + kCodableDims + "); set its bits to 0");
}

std::string reason_for(const PartSpec& part, uint8_t requested, uint8_t active) {
  if (!may_code(part)) {
    if (requested == 0) return "";
    if (part.has_rows() && part.v_dim == 0 && part.kind != PartKind::latent &&
        part.kind != PartKind::pooled) {
      return "K and V in one storage: never coded";
    }
    return std::string(to_string(part.kind)) + ": never coded";
  }
  if (requested == active) return "";
  return active == 0 ? "this layer is kept raw" : "this layer has bits of its own";
}

}  // namespace

Result<Profile> plain_profile(const ModelSpec& model, const CodingSettings& settings) {
  KV_RETURN_IF_ERROR(check_settings(model, settings));
  Profile profile;
  profile.block_tokens = settings.block_tokens;
  profile.prefill = settings.prefill;
  profile.raw_dtype = settings.raw_dtype;
  profile.exact_tokens = settings.exact_tokens;
  profile.requested_k_bits = settings.k_bits;
  profile.requested_v_bits = settings.v_bits;
  auto codable = [](const LayerSpec& l) { return std::ranges::any_of(l.parts, may_code); };
  const auto total = static_cast<uint32_t>(std::ranges::count_if(model.layers, codable));
  uint32_t ordinal = 0;
  for (uint32_t l = 0; l < model.layers.size(); ++l) {
    const LayerSpec& layer = model.layers[l];
    const LayerBits bits = bits_of(settings, l, ordinal, total);
    std::vector<PartCoding>& parts = profile.parts.emplace_back(layer.parts.size());
    for (size_t p = 0; p < layer.parts.size(); ++p) {
      const PartSpec& part = layer.parts[p];
      if (!may_code(part)) continue;
      KV_RETURN_IF_ERROR(check_dim(bits.k_bits, part.k_dim, l, p, Side::k));
      KV_RETURN_IF_ERROR(check_dim(bits.v_bits, part.v_dim, l, p, Side::v));
      parts[p].k_bits = bits.k_bits;
      parts[p].v_bits = bits.v_bits;
    }
    if (codable(layer)) ++ordinal;
  }
  KV_RETURN_IF_ERROR(validate(profile, model));
  return profile;
}

std::vector<PartReport> report(const ModelSpec& model, const Profile& profile) {
  std::vector<PartReport> lines;
  for (uint32_t l = 0; l < model.layers.size(); ++l) {
    for (uint32_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      const PartCoding& coding = profile.coding(l, p);
      auto add = [&](Side side) {
        PartReport line{l, p, part.kind, side, 0, 0, ""};
        line.requested_bits = side == Side::v ? profile.requested_v_bits : profile.requested_k_bits;
        line.active_bits = coding.word(side);
        line.reason = reason_for(part, line.requested_bits, line.active_bits);
        lines.push_back(std::move(line));
      };
      const auto sides = sides_of(part);
      for (const SideSpec& side : sides) add(side.side);
      if (sides.empty()) add(Side::other);
    }
  }
  return lines;
}

std::string coding_name(uint8_t bits) {
  if (bits == 0) return "raw";
  if (bits == kTransformWord) return "tc";
  return (bits == 8 ? "int" : "tq") + std::to_string(bits);
}

std::vector<std::string> lines_by_text(const std::vector<LayerLine>& said) {
  struct Group {
    std::string text;
    std::vector<uint32_t> layers;
  };
  std::vector<Group> groups;
  for (const LayerLine& line : said) {
    auto same = std::ranges::find(groups, line.text, &Group::text);
    if (same == groups.end()) same = groups.insert(groups.end(), Group{line.text, {}});
    if (same->layers.empty() || same->layers.back() != line.layer) {
      same->layers.push_back(line.layer);
    }
  }
  std::vector<std::string> lines;
  for (const Group& g : groups) {
    std::string list;
    for (size_t i = 0; i < g.layers.size();) {
      size_t last = i;
      while (last + 1 < g.layers.size() && g.layers[last + 1] == g.layers[last] + 1) ++last;
      list += (list.empty() ? "" : ",") + std::to_string(g.layers[i]);
      if (last > i) list += "-" + std::to_string(g.layers[last]);
      i = last + 1;
    }
    lines.push_back("layers " + list + " " + g.text);
  }
  return lines;
}

}  // namespace kv
