// A profile whose parts are coded by transforms, for models of any shape: small values take few
// bytes. Bases are no identity, so that components depend on several values, and keys are turned.
#pragma once

#include <cmath>

#include "proto/profile.h"

namespace kv {

/// `base` with each side that may be coded in the hands of a transform: head by head, or all heads
/// of a row together. `step`: of the integers.
inline Profile with_transforms(Profile base, const ModelSpec& model, float step = 0.125f,
                               bool joint = false) {
  TransformSet set;
  set.tables = {{-31, std::vector<uint16_t>(63, 60)}, {-1, {20, 4000, 20}}};
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      const bool codable = part.v_dim > 0 && part.has_rows() && part.kind != PartKind::latent &&
                           part.kind != PartKind::pooled;
      if (!codable) continue;
      PartCoding& coding = base.parts[l][p];
      coding.k_bits = coding.v_bits = kTransformWord;
      for (const SideSpec& side : sides_of(part)) {
        Transform t;
        if (side.side == Side::k) {
          t.rotation = static_cast<uint16_t>(set.rotations.size());
          set.rotations.push_back({p % 2 == 0, {}});
          for (uint32_t i = 0; i < side.dim / 2; ++i) {
            set.rotations.back().step.push_back(
                static_cast<float>(std::pow(1e4, -2.0 * i / side.dim)));
          }
        }
        const uint32_t n = side.heads * side.dim;
        t.width = joint && n <= kMaxTransformWidth ? n : side.dim;
        t.mean.assign(n, 0.25f);
        t.scale.assign(n, step / 127);
        t.basis.assign(size_t{n} * t.width, 0);
        for (uint32_t c = 0; c < n; ++c) {
          t.basis[size_t{c} * t.width + c % t.width] = 127;
          t.basis[size_t{c} * t.width + (c + 1) % t.width] += 31;
        }
        t.table.assign(n, 0);
        t.low_bits.assign(n, 0);
        t.low_bits[0] = 2;
        (side.side == Side::k ? coding.k_transform : coding.v_transform) =
            static_cast<uint16_t>(set.transforms.size());
        set.transforms.push_back(std::move(t));
      }
    }
  }
  base.codec_version = kTransformProfile;
  base.requested_k_bits = base.requested_v_bits = kTransformWord;
  base.transforms = share(std::move(set));
  return base;
}

}  // namespace kv
