// Data for the codec's tests: a model of one geometry, reproducible values, small oracles.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "codec/codec.h"
#include "codec/float16.h"
#include "codec/plan.h"
#include "proto/model.h"
#include "proto/plane.h"

namespace kv::codec_data {

struct SplitMix64 {
  uint64_t state;
  uint64_t next() {
    uint64_t z = state += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  double uniform() { return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53; }
  float gaussian() {  // Box-Muller: good tails, which the distortion depends on
    return static_cast<float>(std::sqrt(-2 * std::log(uniform())) *
                              std::cos(6.283185307179586 * uniform()));
  }
  uint32_t below(uint32_t n) { return static_cast<uint32_t>(next() % n); }
};

/// Head dims of models in use, and one of every kind of rotation, slice and byte alignment.
inline const std::vector<uint32_t> kHeadDims = {32,  36,  40,  48,  64,  72,  80,  96,
                                                100, 112, 120, 128, 144, 160, 192, 224,
                                                240, 256, 320, 384, 480, 512};

inline ModelSpec model_of(uint32_t heads, uint32_t k_dim, uint32_t v_dim, uint32_t layers = 1) {
  ModelSpec model;
  model.name = "test";
  model.fingerprint.bytes[0] = 1;
  PartSpec part;
  part.heads = heads;
  part.k_dim = k_dim;
  part.v_dim = v_dim;
  model.layers.assign(layers, LayerSpec{{part}});
  return model;
}

inline std::shared_ptr<const Codec> codec_of(const ModelSpec& model, const Profile& profile,
                                             const Kernels* kernels = nullptr) {
  auto codec = Codec::create(model, std::make_shared<const Profile>(profile), kernels);
  KV_CHECK(codec.ok());
  return *codec;
}

inline std::shared_ptr<const Codec> plain_codec(const ModelSpec& model, uint8_t k_bits,
                                                uint8_t v_bits, const Kernels* kernels = nullptr,
                                                uint32_t exact_tokens = 4) {
  CodingSettings settings;
  settings.k_bits = k_bits;
  settings.v_bits = v_bits;
  settings.exact_tokens = exact_tokens;
  auto profile = plain_profile(model, settings);
  KV_CHECK(profile.ok());
  return codec_of(model, *profile, kernels);
}

/// An exact f32 plane of layer 0, part 0.
inline Plane plane_of(Side side, uint32_t heads, uint32_t dim, uint32_t first_row,
                      const std::vector<float>& values) {
  Plane plane;
  plane.side = side;
  plane.dtype = DType::f32;
  plane.heads = heads;
  plane.dim = dim;
  plane.first_row = first_row;
  const auto rows = static_cast<uint32_t>(values.size() / (size_t{heads} * dim));
  if (rows > 0) plane.runs = {{RunForm::exact, rows}};
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  plane.bytes = Bytes::copy_of({bytes, values.size() * sizeof(float)});
  return plane;
}

inline std::vector<float> gaussians(size_t n, uint64_t seed, float scale = 1) {
  SplitMix64 random{seed};
  std::vector<float> out(n);
  for (float& x : out) x = random.gaussian() * scale;
  return out;
}

/// All rows of a plane as f32, (rows, heads, dim).
inline std::vector<float> values_of(const Codec& codec, const Plane& plane) {
  auto decoded = codec.decoded(plane, DType::f32);
  KV_CHECK(decoded.ok());
  std::vector<float> out(decoded->bytes.size() / sizeof(float));
  if (!out.empty()) std::memcpy(out.data(), decoded->bytes.data(), decoded->bytes.size());
  return out;
}

inline std::vector<const Kernels*> all_kernels() { return available_kernels(); }

/// |a - b|^2 / |a|^2.
inline double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  KV_CHECK(a.size() == b.size());
  double error = 0, energy = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    energy += double{a[i]} * a[i];
  }
  return error / energy;
}

}  // namespace kv::codec_data
