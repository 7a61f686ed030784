// Rows of several kinds, each correlated in a way of its own, and a profile whose transforms are
// fitted to one kind: what a model's rows of other texts, or another model's, are to its profile.
#pragma once

#include <vector>

#include "codec/plan.h"
#include "codec/transform.h"
#include "codec/transform_fit.h"
#include "tests/support/codec_data.h"

namespace kv {

/// A kind of rows; `size` is a factor of all values.
struct RowKind {
  uint64_t number = 0;
  float size = 1;

  /// (count, values) at positions first …
  std::vector<float> rows(const Plane& of, uint32_t first, uint32_t count) const {
    constexpr uint32_t kFactors = 6;
    constexpr float kOwn = 0.25f;  // of a value, beside what all have in common
    const uint32_t values = of.heads * of.dim;
    const uint64_t seed =
        (number << 40) + (uint64_t{of.layer} << 8) + static_cast<uint64_t>(of.side);
    codec_data::SplitMix64 ways{seed};
    std::vector<float> loadings(size_t{kFactors} * values);
    for (float& l : loadings) l = ways.gaussian();
    std::vector<float> out;
    for (uint32_t r = first; r < first + count; ++r) {
      codec_data::SplitMix64 random{seed * 31 + r};
      float factors[kFactors];
      for (float& f : factors) f = random.gaussian();
      for (uint32_t i = 0; i < values; ++i) {
        float x = kOwn * random.gaussian();
        for (uint32_t k = 0; k < kFactors; ++k) x += factors[k] * loadings[k * values + i];
        out.push_back(size * x);
      }
    }
    return out;
  }
  /// The planes' rows are of this kind.
  void fill(std::vector<Plane>& planes) const {
    for (Plane& p : planes) {
      const std::vector<float> values = rows(p, p.first_row, p.rows());
      p.dtype = DType::f32;
      p.bytes = Bytes::copy_of(
          {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)});
    }
  }
};

/// `base`, which codes nothing, with transforms for K and V of the first part of each layer.
inline Profile fitted_to(const RowKind& kind, Profile base, const ModelSpec& model) {
  constexpr uint32_t kRows = 1500, kFirst = 100'000;
  constexpr float kStep = 0.1f;
  TransformSet set;
  set.tables = {{0, {1}}};
  TableFit fit;
  for (uint16_t l = 0; l < model.layers.size(); ++l) {
    PartCoding& coding = base.parts[l][0];
    coding.k_bits = coding.v_bits = kTransformWord;
    for (const SideSpec& side : sides_of(model.layers[l].parts[0])) {
      Plane like;
      like.layer = l;
      like.side = side.side;
      like.heads = side.heads;
      like.dim = side.dim;
      const std::vector<float> rows = kind.rows(like, kFirst, kRows);
      RowStatistics statistics(side.heads, side.dim, nullptr);
      statistics.add(rows, kFirst);
      auto made = statistics.transform(side.heads * side.dim);
      KV_CHECK(made.ok());
      for (float& s : made->scale) s *= kStep;
      TransformSet alone;
      alone.tables = set.tables;
      alone.transforms = {*made};
      auto tables = TransformTables::create(std::make_shared<const TransformSet>(alone));
      KV_CHECK(tables.ok());
      auto coder = TransformCoder::create(*tables, 0, side.heads, side.dim);
      KV_CHECK(coder.ok());
      fit.add(*made, *(*coder)->integers(rows, kFirst), kRows);
      (side.side == Side::k ? coding.k_transform : coding.v_transform) =
          static_cast<uint16_t>(set.transforms.size());
      set.transforms.push_back(std::move(*made));
    }
  }
  set.tables = fit.finish();
  base.codec_version = kTransformProfile;
  base.requested_k_bits = base.requested_v_bits = kTransformWord;
  base.transforms = share(std::move(set));
  return base;
}

}  // namespace kv
