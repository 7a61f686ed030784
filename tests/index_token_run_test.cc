// TokenRun: packed tokens are the tokens, and are compared as they are.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "index/token_run.h"

namespace kv {
namespace {

std::vector<Token> some_tokens(std::mt19937& rng, size_t n, uint32_t most) {
  std::vector<Token> out(n);
  for (Token& t : out) t = static_cast<Token>(rng() % (uint64_t{most} + 1));
  return out;
}

constexpr uint32_t kMosts[] = {1, 0xFFFF, 0x10000, 0xFFFFF, 0x100000, UINT32_MAX};

TEST(TokenRun, HoldsEveryToken) {
  std::mt19937 rng(1);
  for (uint32_t most : kMosts) {
    for (size_t n : {0, 1, 2, 3, 16, 63, 64, 65, 100, 127, 128, 256, 300}) {
      auto tokens = some_tokens(rng, n, most);
      if (n > 0) tokens[n / 2] = static_cast<Token>(most);  // the form's last value
      TokenRun run(tokens);
      ASSERT_EQ(run.size(), n);
      ASSERT_EQ(run.all(), tokens) << most;
      for (uint32_t i = 0; i < n; ++i) ASSERT_EQ(run[i], tokens[i]);
      ASSERT_EQ(run.memory_bytes(), TokenRun::packed_bytes(tokens));
    }
  }
}

TEST(TokenRun, PacksByTheLargest) {
  std::vector<Token> tokens(256, 5);
  EXPECT_EQ(TokenRun::packed_bytes(tokens), 512u);
  tokens[3] = 0x10000;
  EXPECT_EQ(TokenRun::packed_bytes(tokens), 640u);
  tokens[3] = 0x100000;
  EXPECT_EQ(TokenRun::packed_bytes(tokens), 1024u);
  tokens[3] = -1;
  EXPECT_EQ(TokenRun::packed_bytes(tokens), 1024u);
}

// Differences in one bit of one token, in any form, with runs of any other form and length.
TEST(TokenRun, CommonIsThatOfTheTokens) {
  std::mt19937 rng(2);
  for (int i = 0; i < 20'000; ++i) {
    auto a = some_tokens(rng, rng() % 200, kMosts[rng() % std::size(kMosts)]);
    auto b = rng() % 8 == 0 ? some_tokens(rng, rng() % 200, kMosts[rng() % std::size(kMosts)]) : a;
    if (!b.empty() && rng() % 4 > 0) b[rng() % b.size()] ^= static_cast<Token>(1u << rng() % 32);
    if (rng() % 3 == 0) b.resize(rng() % 200, 7);
    auto [end, other] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    const auto expected = static_cast<uint32_t>(end - a.begin());
    TokenRun run(a), second(b);
    ASSERT_EQ(run.common(b), expected) << i;
    ASSERT_EQ(second.common(a), expected) << i;
    ASSERT_EQ(run.common(second), expected) << i;
  }
}

}  // namespace
}  // namespace kv
