// Profile: what is encoded comes back, its id covers every field, misfits are refused by place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>

#include "proto/profile.h"
#include "tests/support/proto_specs.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::HasSubstr;

TEST(Profile, DecodesToWhatWasEncoded) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    ModelSpec m = random_model(rng);
    Profile p = random_profile(rng, m);
    ASSERT_TRUE(validate(p, m).ok()) << "seed " << seed << ": " << validate(p, m).to_string();
    ByteWriter w;
    encode(p, w);
    ByteReader r(w.span());
    auto back = decode_profile(r);
    ASSERT_TRUE(back.ok() && r.done()) << "seed " << seed;
    EXPECT_EQ(*back, p) << "seed " << seed;
    EXPECT_EQ(back->id(), p.id());
    EXPECT_EQ(encoded_bytes(p), w.size()) << "seed " << seed;
  }
}

TEST(Profile, EveryTruncationIsRefusedAndEveryFlipGivesAnotherId) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Rng rng(seed);
    Profile p = random_profile(rng, random_model(rng));
    ByteWriter w;
    encode(p, w);
    for (size_t n = 0; n < w.size(); ++n) {
      std::vector<uint8_t> cut(w.span().begin(), w.span().begin() + static_cast<ptrdiff_t>(n));
      cut.shrink_to_fit();
      ByteReader r(cut);
      EXPECT_EQ(decode_profile(r).status().code(), StatusCode::corruption) << seed << " " << n;
    }
    for (size_t i = 0; i < w.size() * 8; ++i) {
      std::vector<uint8_t> bytes(w.span().begin(), w.span().end());
      bytes[i / 8] ^= static_cast<uint8_t>(1u << i % 8);
      ByteReader r(bytes);
      auto changed = decode_profile(r);
      if (changed.ok()) {
        EXPECT_NE(changed->id(), p.id()) << "seed " << seed << " bit " << i;
      }
    }
  }
}

TEST(Profile, EachFieldAloneChangesTheId) {
  Profile base;
  base.parts = {{PartCoding{4, 4, {0.f, 1.f}, {1.f, 1.f}}}};
  const std::function<void(Profile&)> changes[] = {
      [](Profile&) {},
      [](Profile& p) { p.codec_version = 2; },
      [](Profile& p) { p.block_tokens = 128; },
      [](Profile& p) { p.prefill = PrefillMode::coded; },
      [](Profile& p) { p.raw_dtype = DType::bf16; },
      [](Profile& p) { p.rotation_seed = 43; },
      [](Profile& p) { p.codebook = 2; },
      [](Profile& p) { p.exact_tokens = 5; },
      [](Profile& p) { p.requested_k_bits = 4; },
      [](Profile& p) { p.requested_v_bits = 4; },
      [](Profile& p) { p.parts[0][0].k_bits = 3; },
      [](Profile& p) { p.parts[0][0].v_bits = 3; },
      [](Profile& p) { p.parts[0][0].key_mean[0] = 0.5f; },
      [](Profile& p) { p.parts[0][0].key_gain[1] = 0.5f; },
      [](Profile& p) { p.parts[0].push_back({}); },
      [](Profile& p) { p.parts.push_back({}); },
  };
  std::set<Id> ids;
  for (const auto& change : changes) {
    Profile p = base;
    change(p);
    ids.insert(p.id());
  }
  EXPECT_EQ(ids.size(), std::size(changes));
}

TEST(Profile, RefusalsNameLayerPartExpectedAndGiven) {
  PartSpec full;
  full.heads = 2;
  full.k_dim = full.v_dim = 8;
  PartSpec latent = full;
  latent.kind = PartKind::latent;
  latent.v_dim = 0;
  ModelSpec m{"m", Id{{1}}, {{{full}}, {{full, latent}}}};
  auto message = [&](auto change) {
    Profile p;
    p.parts = {{PartCoding{}}, {PartCoding{}, PartCoding{}}};
    change(p);
    return validate(p, m).to_string();
  };
  EXPECT_EQ(message([](Profile&) {}), "ok");
  EXPECT_THAT(message([](Profile& p) { p.parts.pop_back(); }),
              HasSubstr("expected 2 layers, given 1"));
  EXPECT_THAT(message([](Profile& p) { p.parts[1].pop_back(); }),
              HasSubstr("layer 1: expected 2 parts, given 1"));
  EXPECT_THAT(message([](Profile& p) { p.parts[1][0].k_bits = 5; }),
              HasSubstr("layer 1 part 0: bits must be 0, 1, 2, 3, 4 or 8"));
  EXPECT_THAT(message([](Profile& p) { p.parts[1][1].k_bits = 4; }),
              HasSubstr("layer 1 part 1: a latent part is never coded"));
  EXPECT_THAT(message([](Profile& p) { p.parts[0][0].key_mean.assign(15, 0.f); }),
              HasSubstr("layer 0 part 0: key_mean: expected 16 values, given 15"));
  EXPECT_THAT(message([](Profile& p) { p.parts[0][0].key_gain.assign(16, 0.f); }),
              HasSubstr("layer 0 part 0: key_gain: a value is not finite and positive"));
  EXPECT_THAT(message([](Profile& p) {
                p.parts[0][0].key_mean.assign(16, std::numeric_limits<float>::quiet_NaN());
              }),
              HasSubstr("layer 0 part 0: key_mean: a value is not finite"));
  EXPECT_THAT(message([](Profile& p) { p.codec_version = 9; }), HasSubstr("unsupported"));
  EXPECT_THAT(message([](Profile& p) { p.block_tokens = 0; }), HasSubstr("block_tokens"));
  EXPECT_THAT(message([](Profile& p) { p.requested_k_bits = 7; }), HasSubstr("requested bits"));
}

}  // namespace
}  // namespace kv
