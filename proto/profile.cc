// Encoding, id and validation of Profile. Encoding: FORMAT.md, "Profile".
#include "proto/profile.h"

#include <cmath>

namespace kv {
namespace {

constexpr uint32_t kMaxChannels = 1u << 20;  // heads x k_dim of one part

bool valid_bits(uint8_t bits) {
  return bits == 0 || bits == 2 || bits == 3 || bits == 4 || bits == 8;
}

Status check_channels(const std::vector<float>& values, size_t expected, bool positive,
                      const std::string& what) {
  if (values.empty()) return {};
  if (values.size() != expected) {
    return invalid_argument(what + ": expected " + std::to_string(expected) + " values, given " +
                            std::to_string(values.size()));
  }
  for (float v : values) {
    if (!std::isfinite(v) || (positive && v <= 0)) {
      return invalid_argument(what + ": a value is not finite" + (positive ? " and positive" : ""));
    }
  }
  return {};
}

Status validate_part(const PartCoding& c, const PartSpec& p, const std::string& where) {
  if (!valid_bits(c.k_bits) || !valid_bits(c.v_bits)) {
    return invalid_argument(where + "bits must be 0, 2, 3, 4 or 8");
  }
  bool may_code = p.v_dim > 0 && (p.kind == PartKind::full || p.kind == PartKind::window ||
                                  p.kind == PartKind::chunk);
  if (!may_code && (c.k_bits != 0 || c.v_bits != 0)) {
    return invalid_argument(where + "a " + to_string(p.kind) + " part is never coded");
  }
  size_t channels = size_t{p.heads} * p.k_dim;
  KV_RETURN_IF_ERROR(check_channels(c.key_mean, channels, false, where + "key_mean"));
  return check_channels(c.key_gain, channels, true, where + "key_gain");
}

}  // namespace

Id Profile::id() const {
  ByteWriter out;
  out.bytes().reserve(encoded_bytes(*this));
  encode(*this, out);
  return sha256(out.span());
}

void encode(const Profile& profile, ByteWriter& out) {
  out.u16(profile.codec_version);
  out.u32(profile.block_tokens);
  out.u8(static_cast<uint8_t>(profile.prefill));
  out.u8(static_cast<uint8_t>(profile.raw_dtype));
  out.u64(profile.rotation_seed);
  out.u16(profile.codebook);
  out.u32(profile.exact_tokens);
  out.u8(profile.requested_k_bits);
  out.u8(profile.requested_v_bits);
  out.u32(static_cast<uint32_t>(profile.parts.size()));
  for (const auto& layer : profile.parts) {
    out.u32(static_cast<uint32_t>(layer.size()));
    for (const auto& part : layer) {
      out.u8(part.k_bits);
      out.u8(part.v_bits);
      out.array(std::span<const float>(part.key_mean));
      out.array(std::span<const float>(part.key_gain));
    }
  }
}

uint64_t encoded_bytes(const Profile& profile) {
  uint64_t bytes = 2 + 4 + 1 + 1 + 8 + 2 + 4 + 1 + 1 + 4;
  for (const auto& layer : profile.parts) {
    bytes += 4;
    for (const auto& part : layer) {
      bytes += 1 + 1 + 4 + 4 + (part.key_mean.size() + part.key_gain.size()) * sizeof(float);
    }
  }
  return bytes;
}

Result<Profile> decode_profile(ByteReader& in) {
  Profile p;
  p.codec_version = in.u16();
  p.block_tokens = in.u32();
  uint8_t prefill = in.u8(), raw = in.u8();
  p.rotation_seed = in.u64();
  p.codebook = in.u16();
  p.exact_tokens = in.u32();
  p.requested_k_bits = in.u8();
  p.requested_v_bits = in.u8();
  uint32_t layers = in.u32();
  if (p.block_tokens == 0 || p.block_tokens > kMaxBlockTokens || prefill > 1 || raw < 1 ||
      raw > 3 || layers > kMaxLayers) {
    in.fail();
  }
  p.prefill = static_cast<PrefillMode>(prefill);
  p.raw_dtype = static_cast<DType>(raw);
  for (uint32_t l = 0; l < layers && !in.failed(); ++l) {
    std::vector<PartCoding> layer;
    uint32_t parts = in.u32();
    if (parts > kMaxPartsPerLayer) in.fail();
    for (uint32_t i = 0; i < parts && !in.failed(); ++i) {
      PartCoding c;
      c.k_bits = in.u8();
      c.v_bits = in.u8();
      c.key_mean = in.array<float>(kMaxChannels);
      c.key_gain = in.array<float>(kMaxChannels);
      if (!valid_bits(c.k_bits) || !valid_bits(c.v_bits)) in.fail();
      layer.push_back(std::move(c));
    }
    p.parts.push_back(std::move(layer));
  }
  if (in.failed()) return corruption("profile: truncated or a field out of range");
  return p;
}

Status validate(const Profile& profile, const ModelSpec& model) {
  if (profile.codec_version != 1 || profile.codebook != 1) {
    return unsupported("profile: codec_version " + std::to_string(profile.codec_version) +
                       " codebook " + std::to_string(profile.codebook) + ", expected 1 and 1");
  }
  if (profile.block_tokens == 0 || profile.block_tokens > kMaxBlockTokens) {
    return invalid_argument("profile: block_tokens outside 1.." + std::to_string(kMaxBlockTokens));
  }
  if (!valid_bits(profile.requested_k_bits) || !valid_bits(profile.requested_v_bits)) {
    return invalid_argument("profile: requested bits must be 0, 2, 3, 4 or 8");
  }
  if (profile.parts.size() != model.layers.size()) {
    return invalid_argument("profile: expected " + std::to_string(model.layers.size()) +
                            " layers, given " + std::to_string(profile.parts.size()));
  }
  for (size_t l = 0; l < model.layers.size(); ++l) {
    const auto& parts = model.layers[l].parts;
    if (profile.parts[l].size() != parts.size()) {
      return invalid_argument("profile: layer " + std::to_string(l) + ": expected " +
                              std::to_string(parts.size()) + " parts, given " +
                              std::to_string(profile.parts[l].size()));
    }
    for (size_t p = 0; p < parts.size(); ++p) {
      std::string where =
          "profile: layer " + std::to_string(l) + " part " + std::to_string(p) + ": ";
      KV_RETURN_IF_ERROR(validate_part(profile.parts[l][p], parts[p], where));
    }
  }
  return {};
}

}  // namespace kv
