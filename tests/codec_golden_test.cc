// The numbers of codec/TURBOQUANT.md, "Golden vectors", and the distortion that theory gives.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "codec/packing.h"
#include "codec/turboquant.h"
#include "tests/support/codec_data.h"

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

// The same recipe for every kind of length: CRC-32 of the code bytes as stored. Made by a dense
// product with the rotation's matrix in integers, entry by entry from its definition.
const Golden kGoldenBytes[] = {
    {32, 1000, 1, 0x408b66cb, 0x5adc, 0.347124},  {32, 1000, 2, 0xc9f65c0e, 0x5aeb, 0.079331},
    {32, 1000, 3, 0xb08e9977, 0x5ab0, 0.025918},  {32, 1000, 4, 0x0786a50b, 0x5b38, 0.007734},
    {32, 1000, 8, 0x41b50a83, 0x433e, 0.000024},  {64, 1000, 1, 0x179e3af8, 0x5a37, 0.306189},
    {64, 1000, 2, 0xc70d4b93, 0x5a9a, 0.101997},  {64, 1000, 3, 0x4ef1757a, 0x5a35, 0.029805},
    {64, 1000, 4, 0xd5235ac4, 0x5a2c, 0.008796},  {64, 1000, 8, 0x9684cdbc, 0x42f3, 0.000026},
    {72, 1000, 1, 0x714431fa, 0x5a5a, 0.412446},  {72, 1000, 2, 0x987280a8, 0x5aef, 0.138324},
    {72, 1000, 3, 0x1bf3bc29, 0x5a98, 0.043586},  {72, 1000, 4, 0xff8d8536, 0x5a81, 0.008416},
    {72, 1000, 8, 0x111a1469, 0x446d, 0.000037},  {80, 1000, 1, 0x4f6b6876, 0x5a42, 0.285408},
    {80, 1000, 2, 0xd10ba0bb, 0x5a93, 0.113538},  {80, 1000, 3, 0x032cf18a, 0x5a32, 0.032924},
    {80, 1000, 4, 0xfa21d080, 0x5a1b, 0.008485},  {80, 1000, 8, 0x1305aef5, 0x43db, 0.000031},
    {96, 1000, 1, 0x8858d7f3, 0x5a8f, 0.316287},  {96, 1000, 2, 0x5a3453f6, 0x5b02, 0.096567},
    {96, 1000, 3, 0xbc573915, 0x5a9e, 0.033948},  {96, 1000, 4, 0x4351f6c8, 0x5a60, 0.007448},
    {96, 1000, 8, 0x675e0553, 0x4468, 0.000029},  {100, 1000, 1, 0xf9f1a21b, 0x5a7f, 0.351212},
    {100, 1000, 2, 0xc6fc8dbe, 0x5acf, 0.099345}, {100, 1000, 3, 0x83da0921, 0x5a68, 0.026614},
    {100, 1000, 4, 0xdeecd7ed, 0x5a8d, 0.007904}, {100, 1000, 8, 0x3eed4934, 0x4436, 0.000034},
    {112, 1000, 1, 0xfe0f987b, 0x5a63, 0.346822}, {112, 1000, 2, 0x3ca658e8, 0x5ae9, 0.118684},
    {112, 1000, 3, 0x70c6883f, 0x5a53, 0.031076}, {112, 1000, 4, 0x7271f372, 0x5a7e, 0.009429},
    {112, 1000, 8, 0x282686b9, 0x4441, 0.000038}, {120, 1000, 1, 0xbdbc60b8, 0x5a88, 0.323153},
    {120, 1000, 2, 0x48c9ab17, 0x5ae6, 0.110971}, {120, 1000, 3, 0x8323c958, 0x5aa8, 0.032916},
    {120, 1000, 4, 0x6197a82a, 0x5a83, 0.008122}, {120, 1000, 8, 0xa2e31115, 0x44a5, 0.000041},
    {128, 1000, 1, 0xc6670be6, 0x5aa9, 0.357086}, {128, 1000, 2, 0x722e96f3, 0x5ad5, 0.098271},
    {128, 1000, 3, 0x136d4053, 0x5aa1, 0.029249}, {128, 1000, 4, 0x6de3dedb, 0x5aab, 0.007344},
    {128, 1000, 8, 0x685586a4, 0x43bc, 0.000028}, {160, 1000, 1, 0x45269758, 0x5a84, 0.370582},
    {160, 1000, 2, 0x873920ad, 0x5acc, 0.107539}, {160, 1000, 3, 0x69fad6a8, 0x5a96, 0.028594},
    {160, 1000, 4, 0x4061abbe, 0x5a75, 0.008359}, {160, 1000, 8, 0xaa7798e1, 0x4404, 0.000030},
    {192, 1000, 1, 0xd433532c, 0x5a82, 0.363992}, {192, 1000, 2, 0x13e04eec, 0x5aca, 0.123830},
    {192, 1000, 3, 0x39c0712c, 0x5a98, 0.036896}, {192, 1000, 4, 0xa44adbad, 0x5aa2, 0.008964},
    {192, 1000, 8, 0xa7b2168f, 0x4518, 0.000054}, {256, 1000, 1, 0x62c5d18c, 0x5a65, 0.328359},
    {256, 1000, 2, 0x9aaf7428, 0x5a9d, 0.103186}, {256, 1000, 3, 0x8b3887b4, 0x5a61, 0.029736},
    {256, 1000, 4, 0x9d5acd40, 0x5a69, 0.008731}, {256, 1000, 8, 0xe8c32f80, 0x439e, 0.000029},
    {512, 1000, 1, 0xa452c3c8, 0x5a7a, 0.351943}, {512, 1000, 2, 0x849b7780, 0x5ac5, 0.120771},
    {512, 1000, 3, 0xacb9eb5d, 0x5aaf, 0.032085}, {512, 1000, 4, 0xbea5975e, 0x5a72, 0.008456},
    {512, 1000, 8, 0xabaa756a, 0x44d5, 0.000043}};

TEST(CodecGolden, BytesOfEveryKindOfLength) {
  for (const Kernels* kernels : all_kernels()) {
    for (const Golden& g : kGoldenBytes) {
      SCOPED_TRACE(std::string(kernels->name) + " d " + std::to_string(g.dim) + " bits " +
                   std::to_string(g.bits));
      const auto signs = rotation_signs(42, g.dim);
      const auto x = golden_input(g.dim, g.seed);
      auto work = x;
      std::vector<uint8_t> codes(code_bytes(g.dim, g.bits));
      uint16_t scale = 0;
      ASSERT_EQ(kernels->encode(work.data(), g.dim, signs.data(), g.bits, codes.data(), &scale),
                VectorState::ok);
      EXPECT_EQ(crc32(codes), g.crc);
      EXPECT_EQ(scale, g.scale);
      std::vector<int16_t> values(g.dim);
      std::vector<float> y(g.dim);
      kernels->unpack(codes.data(), 1, g.dim, g.bits, values.data());
      kernels->decode(values.data(), g.dim, signs.data(),
                      half_to_float(scale) * (code_unit(g.bits) / rotation_norm(g.dim)), y.data());
      EXPECT_NEAR(relative_error(x, y), g.relative_mse, 2e-6);
    }
  }
}

struct DecodedCrcs {
  uint32_t dim = 0;
  uint32_t crc[5] = {};  ///< of 1, 2, 3, 4 and 8 bit
};

// TURBOQUANT.md's table between <!-- NAME --> and <!-- end -->.
std::vector<DecodedCrcs> decoded_crcs(const std::string& name) {
  std::ifstream spec(KV_CODEC_SPEC);
  std::vector<DecodedCrcs> out;
  bool inside = false;
  for (std::string line; std::getline(spec, line);) {
    if (line.starts_with("<!-- ")) inside = line == "<!-- " + name + " -->";
    DecodedCrcs row;
    std::istringstream cells(line);
    char bar = 0;
    if (!inside || !(cells >> bar >> row.dim)) continue;
    for (uint32_t& crc : row.crc) cells >> bar >> std::hex >> crc;
    EXPECT_TRUE(cells) << line;
    out.push_back(row);
  }
  return out;
}

// One row of one head, coded.
Plane coded_row(const std::vector<float>& x, uint8_t bits, const Kernels& kernels) {
  const auto dim = static_cast<uint32_t>(x.size());
  Plane plane = plane_of(Side::k, 1, dim, 4, {});
  plane.dtype = DType::f16;
  plane.bits = bits;
  plane.runs = {{RunForm::codes, 1}};
  std::vector<uint8_t> bytes(code_bytes(dim, bits) + 2);
  std::vector<float> work = x;
  uint16_t scale = 0;
  kernels.encode(work.data(), dim, rotation_signs(42, dim).data(), bits, bytes.data(), &scale);
  std::memcpy(bytes.data() + bytes.size() - 2, &scale, 2);
  plane.bytes = Bytes::owning(std::move(bytes));
  return plane;
}

void expect_decoded(const DecodedCrcs& row, bool with_mean_and_gain, const Kernels& kernels) {
  const uint8_t kBits[] = {1, 2, 3, 4, 8};
  const ModelSpec model = model_of(1, row.dim, row.dim);
  for (int i = 0; i < 5; ++i) {
    CodingSettings settings;
    settings.k_bits = settings.v_bits = kBits[i];
    Profile profile = *plain_profile(model, settings);
    for (uint32_t j = 0; with_mean_and_gain && j < row.dim; ++j) {
      profile.parts[0][0].key_mean.push_back(static_cast<float>(37 * j % 101) - 50);
      profile.parts[0][0].key_gain.push_back(1 + static_cast<float>(j % 7) / 8);
    }
    auto codec = codec_of(model, profile, &kernels);
    auto values = values_of(*codec, coded_row(golden_input(row.dim, 1000), kBits[i], kernels));
    const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
    EXPECT_EQ(crc32({bytes, bytes + values.size() * sizeof(float)}), row.crc[i])
        << kernels.name << " d " << row.dim << " bits " << int{kBits[i]};
  }
}

TEST(CodecGolden, DecodedRowsOfEveryKindOfLength) {
  for (bool with_mean_and_gain : {false, true}) {
    auto rows = decoded_crcs(with_mean_and_gain ? "decoded K" : "decoded");
    EXPECT_EQ(rows.size(), std::size(kGoldenBytes) / 5);
    for (const Kernels* kernels : all_kernels()) {
      for (const DecodedCrcs& row : rows) expect_decoded(row, with_mean_and_gain, *kernels);
    }
  }
}

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
                      half_to_float(scale) * (kCodeUnit / rotation_norm(g.dim)), y.data());
      // The reference keeps the scale in double and the centroids unrounded.
      EXPECT_NEAR(relative_error(x, y), g.relative_mse, 2e-3 * g.relative_mse);
    }
  }
}

TEST(CodecGolden, WorkedExample) {
  const std::tuple<uint8_t, const char*, uint16_t> expected[] = {
      {1, "595b07dd", 0x5adc},
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
  // do a little better. 8 bit: steps of absmax / 127, so (E absmax / 127)^2 / 12, measured 4.8e-5
  // for 256 dims. 1 bit has Lloyd-Max's own scale: D itself.
  const double limit = bits == 1   ? .36338
                       : bits == 2 ? .12115
                       : bits == 3 ? .034851
                       : bits == 4 ? .0095237
                       : dim > 256 ? 5.4e-5
                                   : 4.8e-5;
  const uint32_t kRows = 8000 * 128 / dim;
  auto codec = plain_codec(model_of(1, dim, dim), bits, bits, nullptr, 0);
  auto values = gaussians(size_t{kRows} * dim, 7);
  auto coded = codec->encode(plane_of(Side::k, 1, dim, 0, values));
  ASSERT_TRUE(coded.ok()) << coded.status().to_string();
  ASSERT_EQ(coded->bits, bits);
  const double error = relative_error(values, values_of(*codec, *coded));
  RecordProperty("relative_mse", std::to_string(error));
  EXPECT_LT(error, limit * 1.02);
  EXPECT_GT(error, limit * (bits == 8 ? 0.5 : dim < 64 ? 0.86 : 0.92));
}

// A rotation must spread what sits in few neighbouring channels, as low rope frequencies do.
class CodecRotation : public CodecDistortion {};
TEST_P(CodecRotation, EnergyInAQuarterOfTheChannels) {
  const auto [dim, bits] = GetParam();
  const double limit = bits == 1 ? .36338 : bits == 2 ? .12115 : bits == 3 ? .034851 : .0095237;
  auto codec = plain_codec(model_of(1, dim, dim), bits, bits, nullptr, 0);
  auto values = gaussians(size_t{2000} * dim, 8);
  for (size_t i = 0; i < values.size(); ++i) values[i] *= i % dim >= dim * 3 / 4 ? 1.0f : 0.05f;
  auto coded = codec->encode(plane_of(Side::v, 1, dim, 0, values));
  ASSERT_TRUE(coded.ok());
  EXPECT_LT(relative_error(values, values_of(*codec, *coded)), limit * 1.1);
}

INSTANTIATE_TEST_SUITE_P(All, CodecDistortion,
                         testing::Combine(testing::ValuesIn(kHeadDims),
                                          testing::Values(uint8_t{1}, uint8_t{2}, uint8_t{3},
                                                          uint8_t{4}, uint8_t{8})));
INSTANTIATE_TEST_SUITE_P(All, CodecRotation,
                         testing::Combine(testing::ValuesIn(kHeadDims),
                                          testing::Values(uint8_t{1}, uint8_t{2}, uint8_t{3},
                                                          uint8_t{4})));

}  // namespace
}  // namespace kv
