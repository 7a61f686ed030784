// Codec on whole planes: layouts, exact rows, slicing, means and gains, hostile values and shapes.
#include <gtest/gtest.h>

#include "tests/support/codec_data.h"

namespace kv {
namespace {

using namespace codec_data;

constexpr uint32_t kHeads = 2, kDim = 64;

Plane encode(const Codec& codec, const Plane& plane) {
  auto coded = codec.encode(plane);
  EXPECT_TRUE(coded.ok()) << coded.status().to_string();
  return coded.ok() ? *coded : plane;
}

TEST(CodecPlane, FirstTokensStayExactOthersBecomeCodes) {
  auto codec = plain_codec(model_of(kHeads, kDim, kDim), 4, 3);
  auto values = gaussians(20 * kHeads * kDim, 1);
  Plane coded = encode(*codec, plane_of(Side::v, kHeads, kDim, 0, values));
  EXPECT_EQ(coded.runs, (std::vector<RowRun>{{RunForm::exact, 4}, {RunForm::codes, 16}}));
  EXPECT_EQ(coded.bits, 3);
  EXPECT_EQ(coded.dtype, DType::f16);
  EXPECT_EQ(coded.bytes.size(), 4 * kHeads * kDim * 2 + 16 * kHeads * (kDim * 3 / 8 + 2));
  auto back = values_of(*codec, coded);
  for (size_t i = 0; i < 4 * kHeads * kDim; ++i) {
    EXPECT_EQ(back[i], half_to_float(float_to_half(values[i])));
  }
  EXPECT_LT(relative_error(values, back), .04);
  // A block that starts later has no exact rows; one that starts at 2 has two.
  EXPECT_EQ(encode(*codec, plane_of(Side::v, kHeads, kDim, 256, values)).runs.size(), 1u);
  EXPECT_EQ(encode(*codec, plane_of(Side::v, kHeads, kDim, 2, values)).runs[0].rows, 2u);
  EXPECT_TRUE(codec->check(coded).ok());
}

TEST(CodecPlane, ZeroBitsKeepsThePlaneRaw) {
  auto codec = plain_codec(model_of(kHeads, 80, 48), 0, 0);
  auto values = gaussians(9 * kHeads * 80, 1);
  Plane raw = encode(*codec, plane_of(Side::k, kHeads, 80, 0, values));
  EXPECT_EQ(raw.runs, (std::vector<RowRun>{{RunForm::exact, 9}}));
  EXPECT_EQ(raw.dtype, DType::f16);
  EXPECT_EQ(encode(*codec, raw), raw);  // already in the raw dtype: unchanged
}

TEST(CodecPlane, OneRowOrManyGivesTheSameBytes) {
  for (uint8_t bits : {1, 2, 3, 4, 8}) {
    for (uint32_t dim : kHeadDims) {
      auto model = model_of(3, dim, dim);
      auto codec = plain_codec(model, bits, bits);
      auto scalar = plain_codec(model, bits, bits, &scalar_kernels());
      const Plane exact = plane_of(Side::k, 3, dim, 0, gaussians(13 * 3 * dim, bits + dim));
      const Plane whole = encode(*codec, exact);
      EXPECT_EQ(encode(*scalar, exact), whole);
      std::vector<Plane> single;
      for (uint32_t r = 0; r < 13; ++r)
        single.push_back(encode(*codec, *slice_rows(exact, r, r + 1)));
      auto joined = join_rows(single);
      ASSERT_TRUE(joined.ok());
      EXPECT_EQ(*joined, whole) << "bits " << int{bits} << " dim " << dim;
    }
  }
}

TEST(CodecPlane, SlicingCommutesWithDecoding) {
  SplitMix64 random{3};
  for (uint8_t bits : {1, 2, 3, 4, 8}) {
    auto codec = plain_codec(model_of(kHeads, kDim, kDim), bits, bits);
    const Plane coded =
        encode(*codec, plane_of(Side::k, kHeads, kDim, 0, gaussians(40 * kHeads * kDim, bits)));
    const auto all = values_of(*codec, coded);
    for (int round = 0; round < 20; ++round) {
      uint32_t a = random.below(41), b = random.below(41);
      if (a > b) std::swap(a, b);
      auto sliced = slice_rows(coded, a, b);
      ASSERT_TRUE(sliced.ok());
      const auto part = values_of(*codec, *sliced);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + a * kHeads * kDim));
      std::vector<uint8_t> dst(part.size() * 4);
      ASSERT_TRUE(codec->decode_rows(coded, a, b, DType::f32, dst).ok());
      if (!dst.empty()) {
        EXPECT_EQ(std::memcmp(dst.data(), part.data(), dst.size()), 0);
      }
    }
  }
}

TEST(CodecPlane, CodeRunsAreCopiedNotCodedAgain) {
  auto codec = plain_codec(model_of(kHeads, kDim, kDim), 4, 4);
  const Plane exact = plane_of(Side::k, kHeads, kDim, 0, gaussians(30 * kHeads * kDim, 8));
  const Plane whole = encode(*codec, exact);
  EXPECT_EQ(encode(*codec, *codec->raw(*slice_rows(exact, 0, 4))).bytes,
            slice_rows(whole, 0, 4)->bytes);
  // The tail of a stored sequence: 10 rows from another block's codes, the rest as given.
  Plane head = *slice_rows(whole, 4, 14), rest = *slice_rows(exact, 14, 30);
  head.dtype = DType::f32;  // no exact rows in it
  auto tail = join_rows({head, rest});
  ASSERT_TRUE(tail.ok()) << tail.status().to_string();
  EXPECT_EQ(encode(*codec, *tail), *slice_rows(whole, 4, 30));
  EXPECT_EQ(encode(*codec, whole), whole);
  EXPECT_FALSE(codec->raw(whole).ok());
}

TEST(CodecPlane, EveryOutputType) {
  auto codec = plain_codec(model_of(kHeads, kDim, kDim), 8, 4);
  const Plane coded =
      encode(*codec, plane_of(Side::k, kHeads, kDim, 0, gaussians(12 * kHeads * kDim, 5)));
  const auto f32 = values_of(*codec, coded);
  auto f16 = codec->decoded(coded, DType::f16), bf16 = codec->decoded(coded, DType::bf16);
  ASSERT_TRUE(f16.ok() && bf16.ok());
  for (size_t i = 0; i < f32.size(); ++i) {
    uint16_t h, b;
    std::memcpy(&h, f16->bytes.data() + 2 * i, 2);
    std::memcpy(&b, bf16->bytes.data() + 2 * i, 2);
    EXPECT_EQ(h, float_to_half(f32[i]));
    EXPECT_EQ(b, float_to_bf16(f32[i]));
  }
}

TEST(CodecPlane, SpecialVectors) {
  for (const Kernels* kernels : all_kernels()) {
    for (uint8_t bits : {1, 2, 3, 4, 8}) {
      auto codec = plain_codec(model_of(1, kDim, kDim), bits, bits, kernels, 0);
      auto round_trip = [&](const std::vector<float>& x) {
        Plane coded = encode(*codec, plane_of(Side::v, 1, kDim, 0, x));
        EXPECT_EQ(coded.bits, bits);
        return values_of(*codec, coded);
      };
      const std::vector<float> zero(kDim, 0.0f);
      for (float v : round_trip(zero)) EXPECT_EQ(v, 0.0f);
      for (float v : round_trip(std::vector<float>(kDim, 1e-42f))) EXPECT_EQ(v, 0.0f);
      for (float v : round_trip(std::vector<float>(kDim, 1e-9f))) EXPECT_LE(std::fabs(v), 1e-7f);
      std::vector<float> spike(kDim, 0.0f), constant(kDim, 3.25f);
      spike[11] = 1000;
      const double limit = bits == 8   ? 1e-4
                           : bits == 4 ? .02
                           : bits == 3 ? .06
                           : bits == 2 ? .2
                                       : .5;
      EXPECT_LT(relative_error(spike, round_trip(spike)), limit);
      EXPECT_LT(relative_error(constant, round_trip(constant)), limit);
      auto large = gaussians(kDim, 4, 1e6f / 8);  // norm about 1e6: scales overflow, see below
      for (float& v : large) v = std::clamp(v / 4, -65000.0f, 65000.0f);
      EXPECT_LT(relative_error(large, round_trip(large)), limit);
    }
  }
}

TEST(CodecPlane, ScaleBeyondHalfKeepsRowsRaw) {
  auto model = model_of(kHeads, kDim, kDim);
  CodingSettings settings;
  settings.raw_dtype = DType::bf16;
  auto codec = codec_of(model, *plain_profile(model, settings));
  auto values = gaussians(20 * kHeads * kDim, 1);
  values[15 * kHeads * kDim + 3] = 3e7f;
  Plane kept = encode(*codec, plane_of(Side::k, kHeads, kDim, 0, values));
  EXPECT_EQ(kept.runs, (std::vector<RowRun>{{RunForm::exact, 20}}));
  EXPECT_EQ(kept.bits, 0);
  EXPECT_LT(relative_error(values, values_of(*codec, kept)), 1e-4);
  // A place that was made for codes does not hold them.
  const Plane rows = plane_of(Side::k, kHeads, kDim, 0, values);
  std::vector<uint8_t> place(*codec->encoded_bytes(rows));
  auto placed = codec->encode(rows, place);
  ASSERT_TRUE(placed.ok());
  EXPECT_EQ(*placed, kept);
  // fp16 can't hold it raw either: an error that names the place.
  auto half = plain_codec(model, 4, 4);
  auto refused = half->encode(plane_of(Side::k, kHeads, kDim, 0, values));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "layer 0 part 0 K: row 15 head 0: a value is too large for f16");
}

// Every byte of the place is written: what lay there before is not in the result.
TEST(CodecPlane, CodesGoStraightToTheirPlace) {
  for (uint8_t bits : {0, 1, 2, 3, 4, 8}) {
    for (uint32_t dim : kHeadDims) {
      auto codec = plain_codec(model_of(kHeads, dim, dim), bits, bits);
      const Plane exact = plane_of(Side::k, kHeads, dim, 0, gaussians(9 * kHeads * dim, bits));
      const Plane wanted = encode(*codec, exact);
      auto size = codec->encoded_bytes(exact);
      ASSERT_TRUE(size.ok());
      ASSERT_EQ(*size, wanted.bytes.size());
      std::vector<uint8_t> place(wanted.bytes.size(), 0xA5);
      auto placed = codec->encode(exact, place);
      ASSERT_TRUE(placed.ok());
      EXPECT_EQ(*placed, wanted) << int{bits} << " bits, dim " << dim;
      EXPECT_EQ(placed->bytes.data(), place.data());
    }
  }
}

TEST(CodecPlane, RefusesNonFiniteValuesByName) {
  for (const Kernels* kernels : all_kernels()) {
    auto codec = plain_codec(model_of(kHeads, kDim, kDim), 4, 0, kernels);
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      for (uint32_t row : {1u, 9u}) {
        auto values = gaussians(12 * kHeads * kDim, 1);
        values[row * kHeads * kDim + kDim + 5] = bad;
        for (Side side : {Side::k, Side::v}) {
          auto refused = codec->encode(plane_of(side, kHeads, kDim, 0, values));
          ASSERT_FALSE(refused.ok());
          EXPECT_EQ(refused.status().message(), std::string("layer 0 part 0 ") + to_string(side) +
                                                    ": row " + std::to_string(row) +
                                                    " head 1: a value is not finite");
        }
      }
    }
  }
}

Profile with_mean_and_gain(const ModelSpec& model, const std::vector<float>& mean,
                           const std::vector<float>& gain) {
  Profile profile = *plain_profile(model, {});
  profile.parts[0][0].key_mean = mean;
  profile.parts[0][0].key_gain = gain;
  return profile;
}

TEST(CodecPlane, LargeKeyOffsetIsFreeOnceTheMeanIsRemoved) {
  auto model = model_of(kHeads, kDim, kDim);
  auto keys = gaussians(300 * kHeads * kDim, 21);
  const float norm = std::sqrt(static_cast<float>(kDim));
  auto offset = gaussians(kHeads * kDim, 22, 40.0f);  // per channel: 40 x the keys' own norm
  auto shifted = keys;
  for (size_t i = 0; i < keys.size(); ++i) shifted[i] += offset[i % offset.size()];
  auto error = [&](const Codec& codec, const std::vector<float>& x, bool remove) {
    auto back = values_of(codec, encode(codec, plane_of(Side::k, kHeads, kDim, 256, x)));
    for (size_t i = 0; remove && i < back.size(); ++i) back[i] -= offset[i % offset.size()];
    return relative_error(keys, back);
  };
  const double plain = error(*plain_codec(model, 4, 4), keys, false);
  const double lost = error(*plain_codec(model, 4, 4), shifted, true);
  const double mean = error(*codec_of(model, with_mean_and_gain(model, offset, {})), shifted, true);
  EXPECT_LT(mean, plain * 1.01) << norm;
  EXPECT_GT(lost, 5.0);  // what would happen without: noise of 1600 x the energy
}

TEST(CodecPlane, GainIsUndoneByDecoding) {
  auto model = model_of(kHeads, kDim, kDim);
  SplitMix64 random{31};
  std::vector<float> mean = gaussians(kHeads * kDim, 1, 5), gain(kHeads * kDim);
  for (float& g : gain) g = static_cast<float>(std::exp2(random.uniform() * 4 - 2));
  auto keys = gaussians(50 * kHeads * kDim, 32);
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = keys[i] / gain[i % gain.size()] + mean[i % gain.size()];
  }
  for (const Kernels* kernels : all_kernels()) {
    auto codec = codec_of(model, with_mean_and_gain(model, mean, gain), kernels);
    auto back = values_of(*codec, encode(*codec, plane_of(Side::k, kHeads, kDim, 0, keys)));
    double error = 0;
    for (size_t i = 4 * gain.size(); i < keys.size(); ++i) {
      const double e = (double{keys[i]} - back[i]) * gain[i % gain.size()];
      error += e * e;
    }
    EXPECT_LT(error / static_cast<double>(keys.size() - 4 * gain.size()), .0098);
    // Values have neither.
    Plane v = encode(*codec, plane_of(Side::v, kHeads, kDim, 0, keys));
    EXPECT_EQ(v, encode(*plain_codec(model, 4, 4), plane_of(Side::v, kHeads, kDim, 0, keys)));
  }
}

TEST(CodecPlane, RandomPlanesGiveAStatusNeverACrash) {
  auto codec = plain_codec(model_of(kHeads, kDim, 32), 4, 3);
  SplitMix64 random{2026};
  int accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    Plane p;
    p.layer = static_cast<uint16_t>(random.below(8) == 0 ? 1 : 0);
    p.part = static_cast<uint16_t>(random.below(8) == 0 ? 7 : 0);
    p.side = static_cast<Side>(random.below(8) == 0 ? random.below(5) : random.below(2));
    p.dtype = static_cast<DType>(1 + random.below(3));
    p.heads = random.below(8) == 0 ? random.below(5) : kHeads;
    p.dim = random.below(8) == 0 ? random.below(300) : p.side == Side::k ? kDim : 32;
    p.bits = static_cast<uint8_t>(random.below(8) == 0 ? random.below(256)
                                  : p.side == Side::k  ? 4
                                                       : 3);
    p.first_row = random.below(8) == 0 ? static_cast<uint32_t>(random.next()) : random.below(300);
    for (uint32_t i = random.below(4); i > 0; --i) {
      p.runs.push_back({static_cast<RunForm>(random.below(2)), random.below(40)});
    }
    if (random.below(30) == 0) p.runs.push_back({RunForm::codes, 0xFFFFFFF0u});
    uint64_t size = std::min<uint64_t>(plane_bytes(p), 1 << 20);
    if (random.below(4) == 0) size = random.below(5000);
    std::vector<uint8_t> bytes(size);
    for (auto& b : bytes) b = static_cast<uint8_t>(random.next());
    p.bytes = Bytes::owning(std::move(bytes));
    auto decoded = codec->decoded(p, DType::f16);
    if (decoded.ok()) {
      ++accepted;
      EXPECT_EQ(decoded->bytes.size(), size_t{p.rows()} * p.heads * p.dim * 2);
    }
    (void)codec->check(p);
    (void)codec->encode(p);
    std::vector<uint8_t> dst(random.below(2000));
    (void)codec->decode_rows(p, random.below(300), random.below(300), DType::bf16, dst);
  }
  EXPECT_GT(accepted, 50);
}

TEST(CodecPlane, CheckFindsDamagedScales) {
  auto codec = plain_codec(model_of(1, kDim, kDim), 4, 4, nullptr, 0);
  Plane coded = encode(*codec, plane_of(Side::k, 1, kDim, 0, gaussians(3 * kDim, 1)));
  std::vector<uint8_t> bytes(coded.bytes.data(), coded.bytes.data() + coded.bytes.size());
  bytes.back() = 0x7C;  // the last scale: infinity
  bytes[bytes.size() - 2] = 0;
  coded.bytes = Bytes::owning(std::move(bytes));
  EXPECT_FALSE(codec->check(coded).ok());
  EXPECT_EQ(codec->decoded(coded, DType::f32).status().code(), StatusCode::corruption);
}

}  // namespace
}  // namespace kv
