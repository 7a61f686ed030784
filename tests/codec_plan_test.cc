// Settings → profile → report, refusals by name, and calibration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/calibrate.h"
#include "tests/codec_data.h"

namespace kv {
namespace {

using namespace codec_data;

PartSpec part_of(PartKind kind, uint32_t k_dim, uint32_t v_dim) {
  PartSpec part;
  part.kind = kind;
  part.heads = 2;
  part.k_dim = k_dim;
  part.v_dim = v_dim;
  part.window = kind == PartKind::window ? 512 : 0;
  part.chunk = kind == PartKind::chunk ? 1024 : 0;
  part.rate = kind == PartKind::pooled ? 4 : 0;
  return part;
}

ModelSpec mixed_model() {
  ModelSpec model = model_of(2, 64, 64, 0);
  model.layers = {LayerSpec{{part_of(PartKind::full, 64, 128)}},
                  LayerSpec{{part_of(PartKind::window, 64, 64), part_of(PartKind::pooled, 96, 0),
                             part_of(PartKind::state, 0, 0)}},
                  LayerSpec{},
                  LayerSpec{{part_of(PartKind::latent, 576, 0)}},
                  LayerSpec{{part_of(PartKind::full, 64, 0)}},
                  LayerSpec{{part_of(PartKind::chunk, 32, 32), part_of(PartKind::opaque, 0, 0)}}};
  return model;
}

TEST(CodecPlan, CodesEligiblePartsAndReportsTheRest) {
  const ModelSpec model = mixed_model();
  CodingSettings settings;
  settings.k_bits = 8;
  settings.v_bits = 4;
  auto profile = plain_profile(model, settings);
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  ASSERT_TRUE(Codec::create(model, std::make_shared<const Profile>(*profile)).ok());
  std::string lines;
  for (const PartReport& r : report(model, *profile)) {
    lines += std::to_string(r.layer) + "." + std::to_string(r.part) + " " + to_string(r.side) +
             " " + std::to_string(r.requested_bits) + ">" + std::to_string(r.active_bits) + " " +
             r.reason + "\n";
  }
  EXPECT_EQ(lines,
            "0.0 K 8>8 \n0.0 V 4>4 \n1.0 K 8>8 \n1.0 V 4>4 \n1.1 other 8>0 pooled: never coded\n"
            "1.2 other 8>0 state: never coded\n3.0 other 8>0 latent: never coded\n"
            "4.0 other 8>0 K and V in one storage: never coded\n5.0 K 8>8 \n5.0 V 4>4 \n"
            "5.1 other 8>0 opaque: never coded\n");
}

TEST(CodecPlan, RawLayersAndOverrides) {
  const ModelSpec model = model_of(2, 64, 64, 6);
  CodingSettings settings;
  settings.raw_first_layers = 1;
  settings.raw_last_layers = 2;
  settings.layers = {{2, 8, 3}, {5, 4, 0}};
  auto profile = plain_profile(model, settings);
  ASSERT_TRUE(profile.ok());
  std::vector<std::pair<int, int>> bits;
  for (const auto& layer : profile->parts) bits.emplace_back(layer[0].k_bits, layer[0].v_bits);
  EXPECT_EQ(bits,
            (std::vector<std::pair<int, int>>{{0, 0}, {4, 4}, {8, 3}, {4, 4}, {0, 0}, {4, 0}}));
  auto lines = report(model, *profile);
  EXPECT_EQ(lines[0].reason, "this layer is kept raw");
  EXPECT_EQ(lines[4].reason, "this layer has bits of its own");
}

TEST(CodecPlan, RefusalsNameWhatIsWrong) {
  auto message = [](const ModelSpec& model, const CodingSettings& settings) {
    auto profile = plain_profile(model, settings);
    return profile.ok() ? "ok" : profile.status().to_string();
  };
  CodingSettings settings;
  for (uint32_t dim : {1u, 16u, 28u, 33u, 50u, 66u, 68u, 88u, 104u, 127u, 136u, 514u, 1024u}) {
    EXPECT_THAT(message(model_of(2, 64, dim), settings),
                testing::HasSubstr("layer 0 part 0 V: head_dim " + std::to_string(dim) +
                                   " can't be coded"));
    EXPECT_EQ(plain_profile(model_of(2, 64, dim), settings).status().code(),
              StatusCode::unsupported);
  }
  for (uint32_t dim : kHeadDims) EXPECT_EQ(message(model_of(2, 64, dim), settings), "ok") << dim;
  settings.v_bits = 0;
  EXPECT_EQ(message(model_of(2, 64, 66), settings), "ok");
  settings.k_bits = 5;
  EXPECT_THAT(message(model_of(2, 64, 64), settings), testing::HasSubstr("k_bits 5"));
  settings = {};
  settings.block_tokens = 0;
  EXPECT_THAT(message(model_of(2, 64, 64), settings), testing::HasSubstr("block_tokens 0"));
  settings = {};
  settings.layers = {{9, 4, 4}};
  EXPECT_THAT(message(model_of(2, 64, 64), settings), testing::HasSubstr("layer 9"));
  // A profile from elsewhere meets the same refusal when the codec is made.
  settings = {};
  settings.k_bits = 0;
  Profile profile = *plain_profile(model_of(2, 66, 64), settings);
  profile.parts[0][0].k_bits = 4;
  auto codec = Codec::create(model_of(2, 66, 64), std::make_shared<const Profile>(profile));
  EXPECT_THAT(codec.status().message(), testing::HasSubstr("layer 0 part 0 K: head_dim 66"));
  EXPECT_FALSE(
      Codec::create(model_of(2, 64, 64, 2), std::make_shared<const Profile>(profile)).ok());
}

TEST(CodecCalibrate, MeanAndGainOfKnownKeys) {
  const ModelSpec model = model_of(2, 32, 32);
  KeyStatistics statistics(model);
  SplitMix64 random{5};
  const uint32_t rows = 4000;
  std::vector<float> keys(size_t{rows} * 64), queries(size_t{rows} * 64 * 3);
  auto sigma = [](size_t c) { return c % 32 < 16 ? 0.5f : 2.0f; };
  for (size_t i = 0; i < keys.size(); ++i) {
    const size_t c = i % 64;
    keys[i] = i / 64 < 4 ? 1e6f : static_cast<float>(c) - 30 + sigma(c) * random.gaussian();
  }
  for (size_t i = 0; i < queries.size(); ++i)
    queries[i] = (i % 32 < 16 ? 4.0f : 1.0f) * random.gaussian();
  // In pieces or at once: the same.
  ASSERT_TRUE(statistics.add_keys(0, 0, 0, std::span(keys).first(64 * 7)).ok());
  ASSERT_TRUE(statistics.add_keys(0, 0, 7, std::span(keys).subspan(64 * 7)).ok());
  const Profile base = *plain_profile(model, {});
  auto profile = statistics.calibrated(base);
  ASSERT_TRUE(profile.ok());
  const PartCoding& keys_only = profile->parts[0][0];
  for (size_t c = 0; c < 64; ++c)
    EXPECT_NEAR(keys_only.key_mean[c], static_cast<float>(c) - 30, .15);
  // (1 / Var)^(1/4) = sigma^(-1/2): ratio 2 between the halves.
  EXPECT_NEAR(keys_only.key_gain[3] / keys_only.key_gain[20], 2, .1);
  EXPECT_NEAR(keys_only.key_gain[35] / keys_only.key_gain[60], 2, .1);
  ASSERT_TRUE(statistics.add_queries(0, 0, 0, 3, queries).ok());
  const Profile both = *statistics.calibrated(base);
  // (16 / .25)^(1/4) against (1 / 4)^(1/4): ratio 4.
  EXPECT_NEAR(both.parts[0][0].key_gain[3] / both.parts[0][0].key_gain[20], 4, .2);

  KeyStatistics again(model);
  ASSERT_TRUE(again.add_keys(0, 0, 0, keys).ok());
  EXPECT_EQ(again.calibrated(base)->id(), profile->id());
}

TEST(CodecCalibrate, DegenerateChannelsAndBadInput) {
  const ModelSpec model = model_of(1, 32, 32);
  KeyStatistics statistics(model);
  std::vector<float> keys(100 * 32, 7.0f);  // the head never moves but for channel 0
  for (size_t r = 0; r < 100; ++r) keys[r * 32] = r % 2 ? 1.0f : -1.0f;
  ASSERT_TRUE(statistics.add_keys(0, 0, 4, keys).ok());
  const Profile base = *plain_profile(model, {});
  auto profile = statistics.calibrated(base);
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  for (float g : profile->parts[0][0].key_gain) {
    EXPECT_GE(g, 1.0f / 8);
    EXPECT_LE(g, 8.0f);
  }
  EXPECT_FALSE(statistics.add_keys(1, 0, 4, keys).ok());
  EXPECT_FALSE(statistics.add_keys(0, 0, 4, std::span(keys).first(31)).ok());
  keys[5] = NAN;
  EXPECT_FALSE(statistics.add_keys(0, 0, 4, keys).ok());
  EXPECT_EQ(*statistics.calibrated(base), *profile);
  // Too few rows: the base stays as it is.
  EXPECT_EQ(*KeyStatistics(model).calibrated(base), base);
}

}  // namespace
}  // namespace kv
