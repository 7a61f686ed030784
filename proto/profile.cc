// Encoding, id and validation of Profile. Encoding: FORMAT.md, "Profile".
#include "proto/profile.h"

#include <cmath>

#include "proto/fields.h"

namespace kv {
namespace {

constexpr uint32_t kMaxChannels = 1u << 20;  // heads x k_dim of one part

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

bool valid_word(uint8_t word, bool transforms) {
  return valid_bits(word) || (transforms && word == kTransformWord);
}

Status validate_part(const PartCoding& c, const PartSpec& p, const SharedTransforms* transforms,
                     const std::string& where) {
  const bool any = transforms != nullptr;
  if (!valid_word(c.k_bits, any) || !valid_word(c.v_bits, any)) {
    return invalid_argument(where + "bits must be 0, 1, 2, 3, 4 or 8" + (any ? ", or 16" : ""));
  }
  bool may_code = p.v_dim > 0 && (p.kind == PartKind::full || p.kind == PartKind::window ||
                                  p.kind == PartKind::chunk);
  if (!may_code && (c.k_bits != 0 || c.v_bits != 0)) {
    return invalid_argument(where + "a " + to_string(p.kind) + " part is never coded");
  }
  for (const SideSpec& side : sides_of(p)) {
    const uint16_t index = c.transform(side.side);
    if (c.word(side.side) == kTransformWord) {
      Status fits = validate_shape(transforms->set, index, side.heads, side.dim);
      if (!fits.ok()) return invalid_argument(where + to_string(side.side) + ": " + fits.message());
    } else if (index != 0 && side.side != Side::other) {
      return invalid_argument(where + "a transform of a side that is not coded by one");
    }
  }
  size_t channels = size_t{p.heads} * p.k_dim;
  KV_RETURN_IF_ERROR(check_channels(c.key_mean, channels, false, where + "key_mean"));
  return check_channels(c.key_gain, channels, true, where + "key_gain");
}

void set_field(FieldWriter& io, const std::shared_ptr<const SharedTransforms>& transforms) {
  encode(transforms ? transforms->set : TransformSet(), io.out());
}
void set_field(FieldReader& io, std::shared_ptr<const SharedTransforms>& transforms) {
  auto set = decode_transforms(io.in());
  if (set.ok()) transforms = share(std::move(*set));
}

template <typename Io>
void fields(Io& io, Of<Io, Profile>& p) {
  io.number("codec_version", p.codec_version);
  io.number("block_tokens", p.block_tokens, 1, kMaxBlockTokens);
  io.choice("prefill", p.prefill, PrefillMode::exact, PrefillMode::coded);
  io.choice("raw_dtype", p.raw_dtype, DType::f32, DType::bf16);
  io.number("rotation_seed", p.rotation_seed);
  io.number("codebook", p.codebook);
  io.number("exact_tokens", p.exact_tokens);
  io.number("requested_k_bits", p.requested_k_bits);
  io.number("requested_v_bits", p.requested_v_bits);
  const bool transforms = p.codec_version == kTransformProfile;
  io.list("layers", p.parts, kMaxLayers, [transforms](Io& layer, auto& parts) {
    layer.list("parts", parts, kMaxPartsPerLayer, [transforms](Io& part, auto& c) {
      part.number("k_bits", c.k_bits);
      part.check("k_bits", valid_word(c.k_bits, transforms), c.k_bits, kValidBits);
      part.number("v_bits", c.v_bits);
      part.check("v_bits", valid_word(c.v_bits, transforms), c.v_bits, kValidBits);
      part.array("key_mean", c.key_mean, kMaxChannels);
      part.array("key_gain", c.key_gain, kMaxChannels);
      if (!transforms) return;
      part.number("k_transform", c.k_transform);
      part.number("v_transform", c.v_transform);
    });
  });
  if (transforms && !io.failed()) set_field(io, p.transforms);
}

}  // namespace

bool Profile::operator==(const Profile& o) const {
  const bool same = codec_version == o.codec_version && block_tokens == o.block_tokens &&
                    prefill == o.prefill && raw_dtype == o.raw_dtype &&
                    rotation_seed == o.rotation_seed && codebook == o.codebook &&
                    exact_tokens == o.exact_tokens && requested_k_bits == o.requested_k_bits &&
                    requested_v_bits == o.requested_v_bits && parts == o.parts;
  if (!same || transforms == o.transforms) return same;
  return transforms && o.transforms && transforms->set == o.transforms->set;
}

Id Profile::id() const {
  ByteWriter out;
  out.bytes().reserve(encoded_bytes(*this));
  encode(*this, out);
  return sha256(out.span());
}

void encode(const Profile& profile, ByteWriter& out) {
  FieldWriter io(out);
  fields(io, profile);
}

uint64_t encoded_bytes(const Profile& profile) {
  uint64_t bytes = 2 + 4 + 1 + 1 + 8 + 2 + 4 + 1 + 1 + 4;
  const bool transforms = profile.codec_version == kTransformProfile;
  if (transforms) {
    bytes += encoded_bytes(profile.transforms ? profile.transforms->set : TransformSet());
  }
  for (const auto& layer : profile.parts) {
    bytes += 4;
    for (const auto& part : layer) {
      bytes += 1 + 1 + 4 + 4 + (part.key_mean.size() + part.key_gain.size()) * sizeof(float) +
               (transforms ? 2 + 2 : 0);
    }
  }
  return bytes;
}

Result<Profile> decode_profile(ByteReader& in) {
  Profile p;
  FieldReader io(in);
  fields(io, p);
  if (in.failed()) return corruption("profile: " + in.why());
  return p;
}

Status validate(const Profile& profile, const ModelSpec& model) {
  const uint16_t version = profile.codec_version;
  if ((version != 1 && version != kTransformProfile) || profile.codebook != 1) {
    return unsupported("profile: codec_version " + std::to_string(version) + " codebook " +
                       std::to_string(profile.codebook) + ", expected 1 or 2, and 1");
  }
  const SharedTransforms* transforms = profile.transforms.get();
  if ((version == kTransformProfile) != (transforms != nullptr)) {
    return invalid_argument("profile: codec_version 2 and a set of transforms go together");
  }
  if (transforms) KV_RETURN_IF_ERROR(validate(transforms->set));
  if (profile.block_tokens == 0 || profile.block_tokens > kMaxBlockTokens) {
    return invalid_argument("profile: block_tokens outside 1.." + std::to_string(kMaxBlockTokens));
  }
  if (!valid_word(profile.requested_k_bits, transforms != nullptr) ||
      !valid_word(profile.requested_v_bits, transforms != nullptr)) {
    return invalid_argument("profile: requested bits must be 0, 1, 2, 3, 4 or 8");
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
      KV_RETURN_IF_ERROR(validate_part(profile.parts[l][p], parts[p], transforms, where));
    }
  }
  return {};
}

}  // namespace kv
