// Packing for the SSD: round trips, what isn't worth it, damaged and hostile input.
#include <gtest/gtest.h>

#include <cstring>

#include "codec/kernels.h"
#include "codec/lossless.h"
#include "tests/support/codec_data.h"

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
Result<std::vector<uint8_t>> unpacked(std::span<const uint8_t> packed, size_t bytes,
                                      Status (*way)(std::span<const uint8_t>,
                                                    std::span<uint8_t>) = unpack) {
  std::vector<uint8_t> out(bytes);
  KV_RETURN_IF_ERROR(way(packed, out));
  return out;
}

// Gaussian values of a storage type.
std::vector<uint8_t> values_as(DType dtype, size_t n, uint64_t seed) {
  const auto values = gaussians(n, seed);
  std::vector<uint8_t> out(n * dtype_bytes(dtype));
  const Kernels& k = scalar_kernels();
  if (dtype == DType::f32) std::memcpy(out.data(), values.data(), out.size());
  if (dtype == DType::f16) k.f32_to_f16(values.data(), out.data(), n);
  if (dtype == DType::bf16) k.f32_to_bf16(values.data(), out.data(), n);
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

// Also around a chunk's end.
TEST(CodecSplit, RoundTripOfEveryTypeAndSize) {
  for (DType dtype : {DType::f16, DType::bf16, DType::f32}) {
    for (size_t n : {size_t{512}, size_t{1001}, kSplitValues - 1, kSplitValues, kSplitValues + 1,
                     2 * kSplitValues + 77}) {
      const auto bytes = values_as(dtype, n, n);
      const auto packed = pack_split(bytes, dtype_bytes(dtype));
      ASSERT_TRUE(packed.has_value()) << n;
      EXPECT_LE(packed->size() * 100, bytes.size() * 97);
      auto back = unpacked(*packed, bytes.size(), unpack_split);
      ASSERT_TRUE(back.ok()) << back.status().to_string();
      EXPECT_EQ(*back, bytes) << n;
    }
  }
}

// Exponents apart from mantissas: what a Gaussian's entropy says, and less than zstd finds.
TEST(CodecSplit, SavesMoreThanOneFrameOnFloatingPointValues) {
  for (auto [dtype, most] : {std::pair(DType::f16, .88), {DType::bf16, .71}, {DType::f32, .86}}) {
    const auto bytes = values_as(dtype, 256 * 192, 4);
    const auto split = pack_split(bytes, dtype_bytes(dtype));
    ASSERT_TRUE(split.has_value());
    const auto whole = pack(bytes);
    const size_t one_frame = whole ? whole->size() : bytes.size();
    EXPECT_LT(static_cast<double>(split->size()), most * static_cast<double>(bytes.size()));
    EXPECT_LT(static_cast<double>(split->size()), .95 * static_cast<double>(one_frame));
  }
}

TEST(CodecSplit, NotWorthItOrNoWholeValues) {
  EXPECT_FALSE(pack_split(random_bytes(100000, 1), 2).has_value());
  EXPECT_FALSE(pack_split(random_bytes(100000, 1), 4).has_value());
  EXPECT_FALSE(pack_split({}, 2).has_value());
  EXPECT_FALSE(pack_split(std::vector<uint8_t>(1001), 2).has_value());
  EXPECT_FALSE(pack_split(std::vector<uint8_t>(1002), 4).has_value());
}

// Bytes as FORMAT.md describes them: two f16 stretches, mantissas as they are, 20 equal high bytes
// as a frame.
TEST(CodecSplit, GoldenBytes) {
  std::vector<uint8_t> packed = {2, 20, 0, 0, 0, 17, 0, 0, 0};
  for (uint8_t i = 0; i < 20; ++i) packed.push_back(i);
  for (uint8_t b : {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0x14, 0x45, 0x00, 0x00, 0x10, 0x3c, 0x3c, 0x01,
                    0x00, 0x1e, 0xc0, 0x02}) {
    packed.push_back(b);
  }
  auto back = unpacked(packed, 40, unpack_split);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  for (uint8_t i = 0; i < 20; ++i) {
    EXPECT_EQ((*back)[2 * i], i);
    EXPECT_EQ((*back)[2 * i + 1], 0x3c);
  }
}

TEST(CodecSplit, DamageIsNamedCorruptionAndNeverACrash) {
  const auto bytes = values_as(DType::f16, 1500, 7);
  const auto packed = *pack_split(bytes, 2);
  auto code = [&](std::span<const uint8_t> of, size_t size) {
    return unpacked(of, size, unpack_split).status().code();
  };
  for (size_t size : {bytes.size() - 2, bytes.size() - 1, bytes.size() + 1, bytes.size() + 2,
                      2 * bytes.size(), size_t{0}}) {
    EXPECT_EQ(code(packed, size), StatusCode::corruption) << size;
  }
  for (size_t n = 0; n < packed.size(); ++n) {
    EXPECT_EQ(code(std::span(packed).first(n), bytes.size()), StatusCode::corruption) << n;
  }
  auto other = packed;
  other.push_back(0);
  EXPECT_EQ(code(other, bytes.size()), StatusCode::corruption);
  for (uint8_t width : {0, 1, 3, 5, 255}) {
    other = packed;
    other[0] = width;
    EXPECT_EQ(code(other, bytes.size()), StatusCode::corruption) << int{width};
  }
  // A stretch that isn't there, and one of more bytes than it has values.
  EXPECT_EQ(code(std::vector<uint8_t>{2, 2, 0, 0, 0, 2, 0, 0, 0, 7, 8}, 4), StatusCode::corruption);
  EXPECT_EQ(code(std::vector<uint8_t>{2, 2, 0, 0, 0, 1, 0, 0, 0, 7, 8, 9}, 2),
            StatusCode::corruption);
  for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    other = packed;
    other[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    (void)unpacked(other, bytes.size(), unpack_split);
  }
  SplitMix64 random{8};
  for (int round = 0; round < 500; ++round) {
    auto noise = random_bytes(random.below(300), random.next());
    if (!noise.empty()) noise[0] = random.below(2) == 0 ? 2 : 4;
    (void)unpacked(noise, random.below(100000), unpack_split);
  }
}

}  // namespace
}  // namespace kv
