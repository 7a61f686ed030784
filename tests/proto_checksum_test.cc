// Hashes against their published vectors: stored files and ids depend on every bit of these.
#include <gtest/gtest.h>

#include <cstdio>
#include <numeric>
#include <vector>

#include "proto/checksum.h"

namespace kv {
namespace {

std::span<const uint8_t> bytes_of(std::string_view s) {
  return {reinterpret_cast<const uint8_t*>(s.data()), s.size()};
}
std::string hex(Xxh128 h) {
  char out[33];
  std::snprintf(out, sizeof out, "%016llx%016llx", static_cast<unsigned long long>(h.high),
                static_cast<unsigned long long>(h.low));
  return out;
}

TEST(Crc32c, MatchesTheKnownVectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
  EXPECT_EQ(crc32c(std::vector<uint8_t>(32, 0)), 0x8a9136aau);     // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::vector<uint8_t>(32, 0xff)), 0x62a8ab43u);  // RFC 3720, B.4
}

TEST(Sha256, MatchesTheKnownVectors) {
  EXPECT_EQ(sha256(bytes_of("abc")).hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256({}).hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Xxh3, MatchesTheKnownVectors) {
  EXPECT_EQ(hex(xxh3_128({})), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(hex(xxh3_128(bytes_of("abc"))), "06b05ab6733a618578af5f94892f3950");
  // Long enough for the processor's vectors; of the library without any (XXH_VECTOR 0).
  std::vector<uint8_t> data(5000);
  std::iota(data.begin(), data.end(), uint8_t{3});
  EXPECT_EQ(hex(xxh3_128(data)), "63ccabcb7ecf5893faed9a99bb3ecffe");
}

TEST(Xxh3, StreamInPiecesEqualsTheWhole) {
  std::vector<uint8_t> data(5000);
  std::iota(data.begin(), data.end(), uint8_t{3});
  for (size_t step : {1u, 7u, 256u, 1024u, 4999u}) {
    Xxh128Stream stream;
    for (size_t at = 0; at < data.size(); at += step) {
      stream.update(std::span(data).subspan(at, std::min(step, data.size() - at)));
    }
    EXPECT_EQ(stream.digest(), xxh3_128(data)) << step;
  }
}

TEST(Id, HexGoesThereAndBack) {
  Id id = sha256(bytes_of("abc"));
  auto back = id_from_hex(id.hex());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, id);
  EXPECT_FALSE(id.is_zero());
  EXPECT_TRUE(Id().is_zero());
}

TEST(Id, RefusesWhatIsNot64LowerCaseHexDigits) {
  std::string good(64, 'a');
  EXPECT_TRUE(id_from_hex(good).ok());
  std::string upper = good, dot = good;
  upper[63] = 'A';
  dot[0] = '.';
  for (const std::string& bad : {std::string(), good.substr(1), good + "a", upper, dot}) {
    EXPECT_EQ(id_from_hex(bad).status().code(), StatusCode::invalid_argument) << bad;
  }
}

}  // namespace
}  // namespace kv
