// Token chunks: every way to compare that this processor has finds the first chunk that differs.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "index/token_chunks.h"

namespace kv {
namespace {

constexpr uint32_t kChunks = 4;

std::vector<const ChunkCompare*> ways() {
  std::vector<const ChunkCompare*> out{&kPlainChunks};
  if (avx2_chunks()) out.push_back(avx2_chunks());
  return out;
}

/// Tokens and their packed form, written bit by bit as token_run.cc says.
struct Packed {
  std::vector<Token> tokens{std::vector<Token>(kChunks * kChunkTokens)};
  std::vector<uint8_t> low{std::vector<uint8_t>(tokens.size() * 2)};
  std::vector<uint8_t> high{std::vector<uint8_t>(tokens.size() / 2)};

  explicit Packed(uint32_t bits) {
    std::mt19937 rng(bits);
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      const uint32_t token = rng() % (1u << bits), j = i % kChunkTokens;
      tokens[i] = static_cast<Token>(token);
      low[2 * i] = static_cast<uint8_t>(token);
      low[2 * i + 1] = static_cast<uint8_t>(token >> 8);
      uint8_t& both = high[i / kChunkTokens * 32 + j % 32];
      both = static_cast<uint8_t>(both | (token >> 16) << (j < 32 ? 0 : 4));
    }
  }
};

TEST(TokenChunks, TheFirstChunkWithAnyOtherBitEndsTheEqualOnes) {
  for (const ChunkCompare* way : ways()) {
    Packed narrow(16), wide(20);
    ASSERT_EQ(way->bits16(narrow.low.data(), narrow.tokens.data(), kChunks), kChunks);
    ASSERT_EQ(way->bits20(wide.low.data(), wide.high.data(), wide.tokens.data(), kChunks), kChunks);
    for (uint32_t i = 0; i < kChunks * kChunkTokens; ++i) {
      for (uint32_t bit = 0; bit < 32; ++bit) {
        const auto flip = static_cast<Token>(1u << bit);
        narrow.tokens[i] ^= flip;
        wide.tokens[i] ^= flip;
        const uint32_t chunk = i / kChunkTokens;
        ASSERT_EQ(way->bits16(narrow.low.data(), narrow.tokens.data(), kChunks), chunk) << i;
        ASSERT_EQ(way->bits20(wide.low.data(), wide.high.data(), wide.tokens.data(), kChunks),
                  chunk)
            << i << " bit " << bit;
        narrow.tokens[i] ^= flip;
        wide.tokens[i] ^= flip;
      }
    }
  }
}

TEST(TokenChunks, NothingIsReadOfNoChunks) {
  for (const ChunkCompare* way : ways()) {
    EXPECT_EQ(way->bits16(nullptr, nullptr, 0), 0u);
    EXPECT_EQ(way->bits20(nullptr, nullptr, nullptr, 0), 0u);
  }
}

}  // namespace
}  // namespace kv
