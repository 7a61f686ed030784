// Random models, profiles, planes and objects for the property tests of proto/. Every one is valid
// unless it says otherwise, and a function of the generator's seed alone.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "proto/client.h"
#include "proto/identity.h"
#include "tests/support/transform_profile.h"

namespace kv::testing {

using Rng = std::mt19937_64;

/// Uniform in [low, high].
inline uint32_t pick(Rng& rng, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(rng() % (uint64_t{high} - low + 1));
}

inline std::vector<uint8_t> random_vector(Rng& rng, size_t size) {
  std::vector<uint8_t> out(size);
  for (auto& b : out) b = static_cast<uint8_t>(rng());
  return out;
}

inline Id random_id(Rng& rng) {
  Id id;
  for (auto& b : id.bytes) b = static_cast<uint8_t>(rng());
  return id;
}

inline std::string random_text(Rng& rng, size_t max_bytes) {
  std::string out(pick(rng, 0, static_cast<uint32_t>(max_bytes)), ' ');
  for (auto& c : out) c = static_cast<char>(pick(rng, 'a', 'z'));
  return out;
}

inline PartSpec random_part(Rng& rng) {
  PartSpec p;
  p.kind = static_cast<PartKind>(pick(rng, 1, 7));
  p.dtype = static_cast<DType>(pick(rng, 1, 3));
  p.label = random_text(rng, 20);
  p.snapshot = static_cast<SnapshotPlace>(pick(rng, 0, 1));
  if (!p.has_rows()) return p;
  bool one_storage = p.kind == PartKind::latent || p.kind == PartKind::pooled;
  p.heads = one_storage ? 1 : pick(rng, 1, 3);
  p.k_dim = pick(rng, 1, 4) * 8;
  p.v_dim = one_storage ? 0 : pick(rng, 1, 4) * 8;
  if (p.kind == PartKind::window) p.window = pick(rng, 1, 64), p.keep = pick(rng, 0, 4);
  if (p.kind == PartKind::chunk) p.chunk = pick(rng, 1, 64);
  if (p.kind == PartKind::pooled) p.rate = 1u << pick(rng, 0, 2), p.overlap = rng() % 2 == 0;
  return p;
}

inline ModelSpec random_model(Rng& rng) {
  ModelSpec m{random_text(rng, 30), random_id(rng), {}};
  m.layers.resize(pick(rng, 1, 4));
  for (auto& layer : m.layers) {
    for (uint32_t parts = pick(rng, 0, 3); parts > 0; --parts) {
      layer.parts.push_back(random_part(rng));
    }
  }
  if (m.layers[0].parts.empty()) m.layers[0].parts.push_back(random_part(rng));
  return m;
}

inline uint8_t random_bits(Rng& rng) {
  constexpr uint8_t kBits[] = {0, 1, 2, 3, 4, 8};
  return kBits[rng() % std::size(kBits)];
}

inline Profile random_profile(Rng& rng, const ModelSpec& model, uint32_t block_tokens = 16) {
  Profile p;
  p.block_tokens = block_tokens;
  p.prefill = static_cast<PrefillMode>(pick(rng, 0, 1));
  p.raw_dtype = static_cast<DType>(pick(rng, 1, 3));
  p.rotation_seed = rng();
  p.exact_tokens = pick(rng, 0, 6);
  p.requested_k_bits = random_bits(rng);
  p.requested_v_bits = random_bits(rng);
  for (const auto& layer : model.layers) {
    auto& parts = p.parts.emplace_back();
    for (const auto& part : layer.parts) {
      PartCoding c;
      bool codable = part.v_dim > 0 && part.has_rows();
      if (codable) c.k_bits = random_bits(rng), c.v_bits = random_bits(rng);
      if (codable && rng() % 2) c.key_mean.assign(size_t{part.heads} * part.k_dim, 0.25f);
      if (codable && rng() % 2) c.key_gain.assign(size_t{part.heads} * part.k_dim, 1.5f);
      parts.push_back(std::move(c));
    }
  }
  return rng() % 4 == 0 ? with_transforms(std::move(p), model, 0.125f, rng() % 2 == 0) : p;
}

/// Rows [first, end) of one side, coded from `exact_rows` on if `bits` is not 0.
inline Plane random_plane(Rng& rng, const SideSpec& side, DType dtype, uint8_t bits, uint32_t first,
                          uint32_t end, uint32_t exact_rows) {
  Plane p;
  p.side = side.side;
  p.dtype = dtype;
  p.heads = side.heads;
  p.dim = side.dim;
  p.first_row = first;
  uint32_t coded_from = bits == 0 ? end : std::min(end, std::max(first, exact_rows));
  if (coded_from > first) p.runs.push_back({RunForm::exact, coded_from - first});
  if (end > coded_from && bits == kTransformWord) {  // cut from a stream of a few rows more
    const uint32_t skip = pick(rng, 0, std::min(coded_from, 2u)), rows = end - coded_from;
    p.runs.push_back(
        {RunForm::stream, rows, pick(rng, 1, 50), skip, skip + rows + pick(rng, 0, 2)});
  } else if (end > coded_from) {
    p.runs.push_back({RunForm::codes, end - coded_from}), p.bits = bits;
  }
  p.bytes = Bytes::owning(random_vector(rng, plane_bytes(p)));
  return p;
}

/// A valid block or tail of `model`, its id stamped; rows coded wherever the profile says so.
inline Object random_object(Rng& rng, const ModelSpec& model, const Profile& profile) {
  Object o;
  bool block = rng() % 2 == 0;
  o.name.kind = block ? ObjectKind::block : ObjectKind::tail;
  o.first_token = profile.block_tokens * pick(rng, 0, 2);
  if (o.first_token > 0) o.parent = random_id(rng);
  o.tokens.resize(block ? profile.block_tokens : pick(rng, 1, profile.block_tokens - 1));
  for (auto& t : o.tokens) t = static_cast<Token>(pick(rng, 0, 100000));
  if (rng() % 2) o.extras.push_back({o.first_token, random_vector(rng, 9)});
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t i = 0; i < model.layers[l].parts.size(); ++i) {
      const PartSpec& part = model.layers[l].parts[i];
      if (!part.rows_in_block()) continue;
      uint32_t rate = part.kind == PartKind::pooled ? part.rate : 1;
      uint32_t a = o.first_token / rate, b = o.end_token() / rate;
      if (a == b) continue;
      bool codable = part.v_dim > 0 && part.kind == PartKind::full;
      for (const auto& side : sides_of(part)) {
        const PartCoding& c = profile.coding(l, i);
        uint8_t bits = !codable || !block ? 0 : side.side == Side::k ? c.k_bits : c.v_bits;
        Plane p = random_plane(rng, side, codable ? profile.raw_dtype : part.dtype, bits, a, b,
                               profile.exact_tokens);
        p.layer = static_cast<uint16_t>(l);
        p.part = static_cast<uint16_t>(i);
        o.planes.push_back(std::move(p));
      }
    }
  }
  if (rng() % 3 == 0)
    o.states.push_back({0, 0, Bytes::owning(random_vector(rng, pick(rng, 1, 40)))});
  stamp(o, {"tenant", model.fingerprint, profile.id()});
  return o;
}

}  // namespace kv::testing
