// Random models, planes and objects for tests/proto_codec_test.cc and tests/proto_plane_test.cc.
// A function of the generator's state alone; objects are stamped, so that their ids match.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "proto/identity.h"

namespace kv {

using Random = std::mt19937_64;

/// Uniform in [low, high].
inline uint32_t pick(Random& random, uint32_t low, uint32_t high) {
  return low + static_cast<uint32_t>(random() % (uint64_t{high} - low + 1));
}

inline Bytes random_bytes(Random& random, size_t size) {
  std::vector<uint8_t> out(size);
  for (auto& b : out) b = static_cast<uint8_t>(random());
  return Bytes::adopt(std::move(out));
}

inline Id random_id(Random& random) {
  Id id;
  for (auto& b : id.bytes) b = static_cast<uint8_t>(random());
  return id;
}

inline PartSpec random_part(Random& random) {
  PartSpec p;
  p.kind = static_cast<PartKind>(pick(random, 1, 7));
  p.dtype = static_cast<DType>(pick(random, 1, 3));
  p.label = std::string(pick(random, 0, 9), 'x');
  p.snapshot = static_cast<SnapshotPlace>(pick(random, 0, 1));
  if (!p.has_rows()) return p;
  bool one_storage = p.kind == PartKind::latent || p.kind == PartKind::pooled;
  p.heads = one_storage ? 1 : pick(random, 1, 4);
  p.k_dim = 8 * pick(random, 1, 8);
  p.v_dim = one_storage ? 0 : 8 * pick(random, 1, 8);
  if (p.kind == PartKind::window) p.window = pick(random, 1, 512), p.keep = pick(random, 0, 4);
  if (p.kind == PartKind::chunk) p.chunk = pick(random, 1, 512);
  if (p.kind == PartKind::pooled) p.rate = 1u << pick(random, 0, 4), p.overlap = random() & 1;
  return p;
}

inline ModelSpec random_model(Random& random) {
  ModelSpec model{std::string(pick(random, 0, 20), 'm'), random_id(random), {}};
  model.layers.resize(pick(random, 1, 6));
  for (auto& layer : model.layers) {
    for (uint32_t n = pick(random, 0, 3); n > 0; --n) layer.parts.push_back(random_part(random));
  }
  if (model.layers[0].parts.empty()) model.layers[0].parts.push_back(random_part(random));
  return model;
}

/// `rows` rows from `first_row` on, in runs whose form alternates.
inline Plane random_plane(Random& random, uint32_t first_row, uint32_t rows) {
  static constexpr uint8_t kBits[] = {2, 3, 4, 8};
  Plane p;
  p.side = static_cast<Side>(pick(random, 0, 1));
  p.dtype = static_cast<DType>(pick(random, 1, 3));
  p.heads = pick(random, 1, 4);
  p.dim = 8 * pick(random, 1, 8);
  p.first_row = first_row;
  auto form = static_cast<RunForm>(random() & 1);
  uint8_t bits = kBits[pick(random, 0, 3)];
  for (uint32_t left = rows; left > 0;) {
    uint32_t run = pick(random, 1, left);
    p.runs.push_back({form, run});
    if (form == RunForm::codes) p.bits = bits;
    form = form == RunForm::codes ? RunForm::exact : RunForm::codes;
    left -= run;
  }
  p.bytes = random_bytes(random, plane_bytes(p));
  return p;
}

/// Any kind of object, valid as an encoding (not against a model).
inline Object random_object(Random& random) {
  Object o;
  o.name.kind = static_cast<ObjectKind>(pick(random, 1, 4));
  o.parent = random_id(random);
  o.first_token = 16 * pick(random, 0, 9);
  o.tokens.resize(pick(random, 1, 16));
  for (auto& t : o.tokens) t = static_cast<Token>(pick(random, 0, 50000));
  for (uint32_t n = pick(random, 0, 2); n > 0; --n) {
    auto bytes = random_bytes(random, pick(random, 0, 12));
    o.extras.push_back({o.first_token, {bytes.data(), bytes.data() + bytes.size()}});
  }
  if (o.name.kind == ObjectKind::supplement) {
    o.name.group = static_cast<uint16_t>(pick(random, 0, 3));
    o.name.first_row = o.first_token;
    o.name.end_row = o.end_token();
  }
  for (uint32_t n = pick(random, 0, 4); n > 0; --n) {
    o.planes.push_back(random_plane(random, o.first_token, pick(random, 1, 16)));
  }
  for (uint32_t n = pick(random, 0, 2); n > 0; --n) {
    o.states.push_back({0, 0, random_bytes(random, pick(random, 0, 40))});
  }
  stamp(o, {"tenant", random_id(random), random_id(random)});
  return o;
}

}  // namespace kv
