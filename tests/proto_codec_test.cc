// Encoded models, profiles and object headers: round trips, every truncation, every flipped byte.
#include <gtest/gtest.h>

#include "proto/client.h"
#include "tests/proto_random.h"

namespace kv {
namespace {

Profile random_profile(Random& random, const ModelSpec& model) {
  static constexpr uint8_t kBits[] = {0, 2, 3, 4, 8};
  Profile p;
  p.raw_dtype = static_cast<DType>(pick(random, 1, 3));
  p.rotation_seed = random();
  p.requested_k_bits = kBits[pick(random, 0, 4)];
  for (const auto& layer : model.layers) {
    p.parts.emplace_back();
    for (const auto& part : layer.parts) {
      PartCoding c;
      bool may = part.v_dim > 0 && (part.kind == PartKind::full || part.kind == PartKind::window ||
                                    part.kind == PartKind::chunk);
      if (may) c.k_bits = kBits[pick(random, 0, 4)], c.v_bits = kBits[pick(random, 0, 4)];
      if (may && (random() & 1)) c.key_mean.assign(part.heads * part.k_dim, 0.25f);
      if (may && (random() & 1)) c.key_gain.assign(part.heads * part.k_dim, 2.0f);
      p.parts.back().push_back(std::move(c));
    }
  }
  return p;
}

// Decoding must survive every prefix and every single-byte change of `bytes`.
template <typename Decode>
void abuse(std::span<const uint8_t> bytes, Decode decode) {
  for (size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode(bytes.first(n))) << "a prefix of " << n << " bytes passed as whole";
  }
  std::vector<uint8_t> changed(bytes.begin(), bytes.end());
  for (size_t i = 0; i < changed.size(); ++i) {
    for (uint8_t mask : {0x01, 0x80, 0xff}) {
      changed[i] ^= mask;
      decode(changed);  // any answer but a crash or a huge allocation
      changed[i] ^= mask;
    }
  }
}

TEST(Encoding, ModelsRoundTripAndSurviveAbuse) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    ModelSpec model = random_model(random);
    ByteWriter out;
    encode(model, out);
    ByteReader in(out.span());
    auto back = decode_model(in);
    ASSERT_TRUE(back.ok() && in.done()) << "seed " << seed;
    EXPECT_EQ(*back, model);
    if (seed <= 5) {
      abuse(out.span(), [](std::span<const uint8_t> b) {
        ByteReader r(b);
        return decode_model(r).ok();
      });
    }
  }
}

TEST(Encoding, ProfilesRoundTripAndTheirIdIsTheHashOfTheirBytes) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Random random(seed);
    ModelSpec model = random_model(random);
    Profile profile = random_profile(random, model);
    ASSERT_TRUE(validate(profile, model).ok()) << validate(profile, model).to_string();
    ByteWriter out;
    encode(profile, out);
    EXPECT_EQ(profile.id(), sha256(out.span()));
    ByteReader in(out.span());
    auto back = decode_profile(in);
    ASSERT_TRUE(back.ok() && in.done()) << "seed " << seed;
    EXPECT_EQ(*back, profile);
    if (seed <= 5) {
      abuse(out.span(), [](std::span<const uint8_t> b) {
        ByteReader r(b);
        return decode_profile(r).ok();
      });
    }
  }
}

TEST(Encoding, ObjectHeadersAndPayloadsRoundTripAndSurviveAbuse) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    Object object = random_object(random);
    ByteWriter out;
    encode_header(object, out);
    ByteReader in(out.span());
    auto back = decode_header(in);
    ASSERT_TRUE(back.ok() && in.done()) << "seed " << seed;
    EXPECT_EQ(expected_payload_bytes(*back), object.payload_bytes());
    EXPECT_TRUE(id_matches(*back));
    std::vector<uint8_t> payload;
    for (const auto& p : object.planes) {
      payload.insert(payload.end(), p.bytes.data(), p.bytes.data() + p.bytes.size());
    }
    for (const auto& s : object.states) {
      payload.insert(payload.end(), s.bytes.data(), s.bytes.data() + s.bytes.size());
    }
    Object attached = *back;
    ASSERT_TRUE(attach_payload(attached, Bytes::copy_of(payload)).ok());
    EXPECT_EQ(attached.planes, object.planes);
    EXPECT_EQ(attached.states, object.states);
    payload.push_back(0);
    EXPECT_EQ(attach_payload(attached, Bytes::copy_of(payload)).code(), StatusCode::corruption);
    if (seed <= 10) {
      abuse(out.span(), [](std::span<const uint8_t> b) {
        ByteReader r(b);
        return decode_header(r).ok();
      });
    }
  }
}

ModelSpec plain_model() {
  ModelSpec model;
  model.fingerprint.bytes[0] = 1;
  PartSpec part;
  part.heads = 2;
  part.k_dim = part.v_dim = 32;
  model.layers = {{{part}}, {{part}}};
  return model;
}

Object plain_block(const ModelSpec& model, const Profile& profile) {
  Object o;
  o.name.kind = ObjectKind::block;
  o.tokens.assign(profile.block_tokens, 3);
  for (uint16_t l = 0; l < model.layers.size(); ++l) {
    for (Side side : {Side::k, Side::v}) {
      Plane p;
      p.layer = l;
      p.side = side;
      p.heads = 2;
      p.dim = 32;
      p.runs = {{RunForm::exact, profile.block_tokens}};
      p.bytes = Bytes::adopt(std::vector<uint8_t>(plane_bytes(p)));
      o.planes.push_back(p);
    }
  }
  return o;
}

TEST(Validate, RefusalsNameLayerPartExpectedAndGiven) {
  ModelSpec model = plain_model();
  Profile profile;
  profile.parts = {{PartCoding{}}, {PartCoding{4, 4, {}, {}}}};
  Object good = plain_block(model, profile);
  ASSERT_TRUE(validate(good, model, profile).ok()) << validate(good, model, profile).to_string();

  auto refused = [&](auto change, const std::string& expected) {
    Object o = good;
    change(o);
    Status s = validate(o, model, profile);
    EXPECT_EQ(s.code(), StatusCode::invalid_argument) << expected;
    EXPECT_NE(s.message().find(expected), std::string::npos) << s.message();
  };
  refused([](Object& o) { o.planes[2].heads = 3; },
          "layer 1 part 0 side K: heads: expected 2, given 3");
  refused([](Object& o) { o.planes[3].dim = 64; },
          "layer 1 part 0 side V: dim: expected 32, given 64");
  refused([](Object& o) { o.planes[0].dtype = DType::f32; },
          "layer 0 part 0 side K: dtype: expected f16, given f32");
  refused([](Object& o) { o.planes.pop_back(); },
          "layer 1 part 0 side V: expected rows [0, 256), given no plane");
  refused([](Object& o) { o.planes[0].bytes = o.planes[0].bytes.slice(0, 100); },
          "layer 0 part 0 side K: bytes: expected 32768, given 100");
  refused([](Object& o) {
            o.planes[1].runs = {{RunForm::exact, 255}};
            o.planes[1].bytes = o.planes[1].bytes.slice(0, plane_bytes(o.planes[1]));
          },
          "layer 0 part 0 side V: expected rows [0, 256), given [0, 255)");
  refused([](Object& o) {
            o.planes[0].bits = 4;
            o.planes[0].runs = {{RunForm::exact, 4}, {RunForm::codes, 252}};
            o.planes[0].bytes = Bytes::adopt(std::vector<uint8_t>(plane_bytes(o.planes[0])));
          },
          "layer 0 part 0 side K: bits: expected 0, given 4");
  refused([](Object& o) {
            o.planes[2].bits = 4;
            o.planes[2].runs = {{RunForm::codes, 256}};
            o.planes[2].bytes = Bytes::adopt(std::vector<uint8_t>(plane_bytes(o.planes[2])));
          },
          "layer 1 part 0 side K: first coded row at least: expected 4, given 0");
  refused([](Object& o) { o.planes[0].layer = 2; }, "layer 2 part 0 side K: the model has no such");
  refused([](Object& o) { o.tokens.pop_back(); }, "tokens of a block: expected 256, given 255");
}

TEST(Validate, ModelsAndProfilesAreRefusedByField) {
  ModelSpec model = plain_model();
  EXPECT_TRUE(validate(model, 256).ok());
  ModelSpec bad = model;
  bad.layers[1].parts[0].heads = 0;
  EXPECT_NE(validate(bad, 256).message().find("layer 1 part 0: heads 0"), std::string::npos);
  bad = model;
  bad.layers[0].parts[0].kind = PartKind::pooled;
  bad.layers[0].parts[0].rate = 3;
  EXPECT_EQ(validate(bad, 256).code(), StatusCode::unsupported);
  Profile profile;
  profile.parts = {{PartCoding{}}, {PartCoding{}}};
  profile.parts[1][0].key_gain.assign(64, 1.0f);
  EXPECT_TRUE(validate(profile, model).ok());
  profile.parts[1][0].key_gain[5] = 0;
  EXPECT_NE(validate(profile, model).message().find("layer 1 part 0: key_gain"), std::string::npos);
  profile.parts[1][0].key_gain.assign(63, 1.0f);
  EXPECT_NE(validate(profile, model).message().find("expected 64 values, given 63"),
            std::string::npos);
  model.layers[0].parts[0].kind = PartKind::latent;
  profile.parts[1][0].key_gain.clear();
  profile.parts[0][0].k_bits = 4;
  EXPECT_NE(validate(profile, model).message().find("a latent part is never coded"),
            std::string::npos);
}

TEST(Prefix, TrimSharesPlanesAndRefusesWhatHasNoRowCount) {
  Random random(5);
  auto object = [&](ObjectKind kind, uint32_t first, uint32_t tokens) {
    auto o = std::make_shared<Object>();
    o->name.kind = kind;
    o->first_token = first;
    o->tokens.assign(tokens, 1);
    return ObjectPtr(o);
  };
  Prefix prefix{600, {{object(ObjectKind::block, 0, 256), 256},
                      {object(ObjectKind::block, 256, 256), 512},
                      {object(ObjectKind::tail, 512, 88), 600}}};
  auto cut = prefix.trimmed(300);
  ASSERT_TRUE(cut.ok());
  ASSERT_EQ(cut->objects.size(), 2u);
  EXPECT_EQ(cut->objects[1].object, prefix.objects[1].object) << "shared, not copied";
  EXPECT_EQ(cut->objects[1].end_token, 300u);
  EXPECT_EQ(prefix.tokens, 600u);
  EXPECT_FALSE(prefix.trimmed(601).ok());
  prefix.objects.push_back({object(ObjectKind::snapshot, 512, 88), 600});
  EXPECT_EQ(prefix.trimmed(300).status().code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace kv
