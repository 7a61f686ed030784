// Packing for the SSD: round trips, what isn't worth it, damaged and hostile input.
#include <gtest/gtest.h>

#include "codec/lossless.h"
#include "tests/codec_data.h"

namespace kv {
namespace {

using namespace codec_data;

std::vector<uint8_t> random_bytes(size_t n, uint64_t seed, uint32_t alphabet = 256) {
  SplitMix64 random{seed};
  std::vector<uint8_t> out(n);
  for (auto& b : out) b = static_cast<uint8_t>(random.below(alphabet));
  return out;
}

// What `packed` unpacks to, if it has that many bytes.
Result<std::vector<uint8_t>> unpacked(std::span<const uint8_t> packed, size_t bytes) {
  std::vector<uint8_t> out(bytes);
  KV_RETURN_IF_ERROR(unpack(packed, out));
  return out;
}

TEST(CodecLossless, RoundTrip) {
  for (size_t n : {400u, 5000u, 300000u}) {
    const auto bytes = random_bytes(n, n, 40);
    auto packed = pack(bytes);
    ASSERT_TRUE(packed.has_value()) << n;
    EXPECT_LE(packed->size(), n * 97 / 100);
    auto back = unpacked(*packed, n);
    ASSERT_TRUE(back.ok()) << back.status().to_string();
    EXPECT_EQ(*back, bytes);
  }
}

TEST(CodecLossless, FourBitCodesSaveAboutFivePercent) {
  auto codec = plain_codec(model_of(2, 128, 128), 4, 4, nullptr, 0);
  auto coded = codec->encode(plane_of(Side::v, 2, 128, 0, gaussians(1024 * 256, 3)));
  ASSERT_TRUE(coded.ok());
  auto packed = pack(coded->bytes.span());
  ASSERT_TRUE(packed.has_value());
  const double ratio =
      static_cast<double>(packed->size()) / static_cast<double>(coded->bytes.size());
  EXPECT_LT(ratio, .955);
  EXPECT_GT(ratio, .93);
}

TEST(CodecLossless, NotWorthIt) {
  EXPECT_FALSE(pack(random_bytes(100000, 1)).has_value());
  EXPECT_FALSE(pack(random_bytes(100000, 1, 252)).has_value());
  EXPECT_FALSE(pack({}).has_value());
}

TEST(CodecLossless, DamageIsNamedCorruption) {
  const auto bytes = random_bytes(2000, 5, 20);
  const auto packed = *pack(bytes);
  EXPECT_EQ(unpacked(packed, bytes.size() + 1).status().code(), StatusCode::corruption);
  EXPECT_EQ(unpacked(packed, bytes.size() - 1).status().code(), StatusCode::corruption);
  EXPECT_FALSE(unpacked({}, 0).ok());
  for (size_t n = 0; n < packed.size(); ++n) {
    EXPECT_FALSE(unpacked(std::span(packed).first(n), bytes.size()).ok()) << n;
  }
  auto longer = packed;
  longer.push_back(0);
  EXPECT_FALSE(unpacked(longer, bytes.size()).ok());
  // No checksum in the frame (the file has one): a flipped bit may give other bytes, never a crash
  // or a byte beyond them (the sanitizers see those).
  for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    auto damaged = packed;
    damaged[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    (void)unpacked(damaged, bytes.size());
  }
  SplitMix64 random{6};
  for (int round = 0; round < 500; ++round) {
    (void)unpacked(random_bytes(random.below(300), random.next()), random.below(100000));
  }
}

}  // namespace
}  // namespace kv
