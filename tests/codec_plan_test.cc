// Settings → profile → report, refusals by name, and calibration.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "codec/bit_plan.h"
#include "codec/calibrate.h"
#include "codec/preset.h"
#include "tests/support/codec_data.h"

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

TEST(CodecPreset, NamesStandForBits) {
  std::string all;
  for (const Preset& p : presets()) {
    all += std::string(p.name) + " " + std::to_string(p.k_bits) + std::to_string(p.v_bits) + ",";
    EXPECT_EQ(find_preset(p.name)->k_bits, p.k_bits);
    EXPECT_EQ(find_preset(p.name)->v_bits, p.v_bits);
  }
  EXPECT_EQ(all, "lossless 00,tq8 88,tq84 84,tq4 44,tq3 33,tq2 22,auto 84,");
  EXPECT_EQ(find_preset("raw")->k_bits, 0);
  EXPECT_EQ(find_preset("int8")->v_bits, 8);
  for (const char* bad : {"", "tq5", "TQ4", "tq4 "}) {
    EXPECT_THAT(find_preset(bad).status().message(), testing::HasSubstr("lossless, tq8, tq84"));
  }
  EXPECT_EQ(preset_name(8, 4), "tq84");
  EXPECT_EQ(preset_name(0, 0), "lossless");
  EXPECT_EQ(preset_name(3, 0), "K tq3 V lossless");
  EXPECT_EQ(preset_name(5, 4), "K 5 bits V tq4");
}

// TURBOQUANT.md's table of what was measured, from the most exact to the smallest.
TEST(CodecPreset, AutoIsTheSmallestThatKeepsNearlyAllBestTokens) {
  std::ifstream spec(KV_CODEC_SPEC);
  std::string smallest, line;
  int rows = 0;
  while (std::getline(spec, line)) {
    if (!line.starts_with("| tq")) continue;
    const std::string cell = line.substr(line.rfind('|', line.size() - 2) + 1);
    double first = 0, second = 0;
    ASSERT_EQ(std::sscanf(cell.c_str(), " %lf · %lf |", &first, &second), 2) << line;
    if (std::min(first, second) >= 0.99) smallest = line.substr(2, line.find(' ', 2) - 2);
    ++rows;
  }
  EXPECT_EQ(rows, 5);
  ASSERT_TRUE(find_preset(smallest).ok()) << smallest;
  const Preset taken = *find_preset("auto"), wanted = *find_preset(smallest);
  EXPECT_EQ(preset_name(taken.k_bits, taken.v_bits), preset_name(wanted.k_bits, wanted.v_bits));
}

// By the planes that the codec really makes.
TEST(CodecPreset, StoredRatioIsThatOfRealPlanes) {
  for (auto [k, v] : std::vector<std::pair<uint8_t, uint8_t>>{{4, 4}, {8, 3}, {0, 2}}) {
    const ModelSpec model = model_of(2, 64, 128, 1);
    CodingSettings settings;
    settings.k_bits = k;
    settings.v_bits = v;
    const Profile profile = *plain_profile(model, settings);
    auto codec = *Codec::create(model, std::make_shared<const Profile>(profile));
    for (uint32_t rows : {3u, 40u}) {
      double stored = 0;
      for (Side side : {Side::k, Side::v}) {
        Plane plane;
        plane.side = side;
        plane.dtype = DType::f32;
        plane.heads = 2;
        plane.dim = side == Side::k ? 64 : 128;
        plane.runs = {{RunForm::exact, rows}};
        plane.bytes = Bytes::owning(std::vector<uint8_t>(plane_bytes(plane), 1));
        stored += static_cast<double>(codec->encode(plane)->bytes.size());
      }
      EXPECT_DOUBLE_EQ(stored_ratio(model, profile, rows), stored / (rows * 2 * (64 + 128) * 2));
    }
  }
}

// All combinations, tried one by one.
TEST(CodecBitPlan, IsTheBestOfAllCombinations) {
  SplitMix64 random{11};
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE("seed 11, round " + std::to_string(round));
    std::vector<std::vector<BitChoice>> items(1 + random.next() % 5);
    const uint64_t unit = round % 3 == 0 ? 6 : 1;
    for (auto& item : items) {
      item.resize(1 + random.next() % 4);
      for (BitChoice& c : item) {
        c = {unit * (random.next() % 40), static_cast<double>(random.next() % 1000)};
      }
    }
    const uint64_t budget = random.next() % (unit * 120);
    double best = -1;
    std::vector<size_t> at(items.size());
    for (bool more = true; more;) {
      uint64_t bytes = 0;
      double sum = 0;
      for (size_t i = 0; i < items.size(); ++i) {
        bytes += items[i][at[i]].bytes;
        sum += items[i][at[i]].divergence;
      }
      if (bytes <= budget && (best < 0 || sum < best)) best = sum;
      size_t i = 0;
      while (i < items.size() && ++at[i] == items[i].size()) at[i++] = 0;
      more = i < items.size();
    }
    auto got = best_choices(items, budget);
    ASSERT_EQ(got.ok(), best >= 0) << got.status().to_string();
    if (!got.ok()) {
      EXPECT_EQ(got.status().code(), StatusCode::resource_exhausted);
      continue;
    }
    uint64_t bytes = 0;
    double sum = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      bytes += items[i][(*got)[i]].bytes;
      sum += items[i][(*got)[i]].divergence;
    }
    EXPECT_LE(bytes, budget);
    EXPECT_EQ(sum, best);
  }
}

TEST(CodecBitPlan, HugeSizesAreRoundedUpNeverOverTheBudget) {
  SplitMix64 random{12};
  std::vector<std::vector<BitChoice>> items(64);
  uint64_t budget = 0;
  for (auto& item : items) {
    for (uint64_t bits : {2, 4, 8}) {
      const double noise = 1.0 / static_cast<double>(1u << (2 * bits));
      item.push_back({bits * 1'000'000'007 + random.next() % 1000, noise});
    }
    budget += item[1].bytes;
  }
  auto got = best_choices(items, budget);
  ASSERT_TRUE(got.ok());
  uint64_t bytes = 0;
  for (size_t i = 0; i < items.size(); ++i) bytes += items[i][(*got)[i]].bytes;
  EXPECT_LE(bytes, budget);
  EXPECT_GT(bytes, budget / 100 * 95) << "the budget is used";
  items.emplace_back();
  EXPECT_EQ(best_choices(items, budget).status().code(), StatusCode::invalid_argument);
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
