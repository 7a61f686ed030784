// The numbers of codec/TURBOQUANT.md, "Golden vectors", and the distortion that theory gives.
#include <gtest/gtest.h>

#include "codec/packing.h"
#include "codec/turboquant.h"
#include "tests/codec_data.h"

namespace kv {
namespace {

using namespace codec_data;

uint32_t crc32(const std::vector<uint8_t>& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (uint8_t b : bytes) {
    crc ^= b;
    for (int i = 0; i < 8; ++i) crc = (crc >> 1) ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  return ~crc;
}

std::vector<float> golden_input(uint32_t dim, uint64_t seed) {
  SplitMix64 random{seed};
  std::vector<float> x(dim);
  for (float& v : x) {
    uint64_t word = random.next();
    int sum = -1020;
    for (int i = 0; i < 8; ++i) sum += static_cast<int>((word >> (8 * i)) & 255);
    v = static_cast<float>(sum);
  }
  return x;
}

TEST(CodecGolden, Signs) {
  const std::pair<uint32_t, uint32_t> expected[] = {
      {64, 0x767191e6}, {128, 0x8436679a}, {256, 0x47c56d20}};
  for (auto [dim, crc] : expected) {
    std::vector<uint8_t> negative;
    for (float s : rotation_signs(42, dim)) negative.push_back(s < 0);
    EXPECT_EQ(crc32(negative), crc) << dim;
  }
}

TEST(CodecGolden, Input) {
  auto x = golden_input(128, 1000);
  EXPECT_EQ(std::vector<float>(x.begin(), x.begin() + 4), (std::vector<float>{-59, 415, 76, 279}));
}

TEST(CodecGolden, RotatedValues) {
  for (const Kernels* kernels : all_kernels()) {
    auto x = golden_input(128, 1000);
    kernels->rotate(x.data(), 128, rotation_signs(42, 128).data());
    EXPECT_EQ(std::vector<float>(x.begin(), x.begin() + 8),
              (std::vector<float>{-1301, -1613, 3741, -527, 2283, 1511, -1459, 437}));
  }
}

struct Golden {
  uint32_t dim;
  uint64_t seed;
  uint8_t bits;
  uint32_t crc;
  uint16_t scale;
  double relative_mse;
};

const Golden kGolden[] = {
    {64, 1000, 2, 0x2450a4f0, 0x5a9a, .102073},  {64, 1000, 3, 0x762adb5c, 0x5a35, .029783},
    {64, 1000, 4, 0x94794da0, 0x5a2c, .008791},  {128, 1000, 2, 0x1f0ff2ae, 0x5ad5, .098263},
    {128, 1000, 3, 0x924a352e, 0x5aa1, .029251}, {128, 1000, 4, 0x8036a002, 0x5aab, .007347},
    {128, 1001, 4, 0x0b4f79ba, 0x59d9, .007049}, {128, 1002, 3, 0x8801e2d4, 0x5a2b, .037644},
    {256, 1000, 4, 0x666d8030, 0x5a69, .008732}, {256, 1001, 4, 0x98d030aa, 0x5a40, .009388}};

TEST(CodecGolden, CodesScalesAndError) {
  for (const Kernels* kernels : all_kernels()) {
    for (const Golden& g : kGolden) {
      SCOPED_TRACE(std::string(kernels->name) + " d " + std::to_string(g.dim) + " seed " +
                   std::to_string(g.seed) + " bits " + std::to_string(g.bits));
      const auto signs = rotation_signs(42, g.dim);
      const auto x = golden_input(g.dim, g.seed);
      auto work = x;
      std::vector<uint8_t> codes(code_bytes(g.dim, g.bits)), index;
      uint16_t scale = 0;
      ASSERT_EQ(kernels->encode(work.data(), g.dim, signs.data(), g.bits, codes.data(), &scale),
                VectorState::ok);
      for (uint32_t j = 0; j < g.dim; ++j) {
        index.push_back(static_cast<uint8_t>(index_at(codes.data(), g.dim, g.bits, j)));
      }
      EXPECT_EQ(crc32(index), g.crc);
      EXPECT_EQ(scale, g.scale);
      std::vector<int16_t> values(g.dim);
      std::vector<float> y(g.dim);
      kernels->unpack(codes.data(), 1, g.dim, g.bits, values.data());
      kernels->decode(values.data(), g.dim, signs.data(),
                      half_to_float(scale) * kCodeUnit / std::sqrt(static_cast<float>(g.dim)),
                      y.data());
      // The reference keeps the scale in double and the centroids unrounded.
      EXPECT_NEAR(relative_error(x, y), g.relative_mse, 2e-3 * g.relative_mse);
    }
  }
}

TEST(CodecGolden, WorkedExample) {
  const std::tuple<uint8_t, const char*, uint16_t> expected[] = {
      {2, "a7b61bbe1d5a42d8", 0x5aeb},
      {3, "4a2961693bf0c4f1595b07dd", 0x5ab0},
      {4, "8bca4bda76792862a59538ac1c7863d9", 0x5b38},
      {8, "422a3d27ec11099ad7d60154430fac120d57c766faf294eb3011af2581f1ed6c", 0x433e}};
  for (const Kernels* kernels : all_kernels()) {
    for (auto [bits, hex, scale] : expected) {
      auto x = golden_input(32, 1000);
      std::vector<uint8_t> codes(code_bytes(32, bits));
      uint16_t given = 0;
      kernels->encode(x.data(), 32, rotation_signs(42, 32).data(), bits, codes.data(), &given);
      std::string text;
      for (uint8_t c : codes) {
        for (int nibble : {c >> 4, c & 15}) text += "0123456789abcdef"[nibble];
      }
      EXPECT_EQ(text, hex) << int{bits} << kernels->name;
      EXPECT_EQ(given, scale);
    }
  }
}

class CodecDistortion : public testing::TestWithParam<std::tuple<uint32_t, uint8_t>> {};

TEST_P(CodecDistortion, WithinTwoPercentOfLloydMax) {
  const auto [dim, bits] = GetParam();
  // 2 (1 - sqrt(1 - D)) of Lloyd-Max: the limit with norm correction for long vectors, shorter ones
  // do a little better. 8 bit: steps of absmax / 127, so (E absmax / 127)^2 / 12, measured 4.8e-5.
  const double limit = bits == 2 ? .12115 : bits == 3 ? .034851 : bits == 4 ? .0095237 : 4.8e-5;
  constexpr uint32_t kRows = 20000;
  auto codec = plain_codec(model_of(1, dim, dim), bits, bits, nullptr, 0);
  auto values = gaussians(size_t{kRows} * dim, 7);
  auto coded = codec->encode(plane_of(Side::k, 1, dim, 0, values));
  ASSERT_TRUE(coded.ok()) << coded.status().to_string();
  ASSERT_EQ(coded->bits, bits);
  const double error = relative_error(values, values_of(*codec, *coded));
  RecordProperty("relative_mse", std::to_string(error));
  EXPECT_LT(error, limit * 1.02);
  EXPECT_GT(error, limit * (bits == 8 ? 0.5 : dim == 32 ? 0.86 : 0.92));
}

INSTANTIATE_TEST_SUITE_P(All, CodecDistortion,
                         testing::Combine(testing::Values(32u, 64u, 128u, 256u),
                                          testing::Values(uint8_t{2}, uint8_t{3}, uint8_t{4},
                                                          uint8_t{8})));

}  // namespace
}  // namespace kv
