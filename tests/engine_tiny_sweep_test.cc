// Every length up to 600 of every tiny model: restored from RAM and from SSD, the rest of the
// prompt computed, the same 64 tokens. And with coded prefill: a hit wherever another prompt ended.
#include "engine/generator.h"
#include "tests/engine_tiny.h"

namespace kv {
namespace {

class TinySweep : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, TinySweep,
                         testing::Values("sinks", "chunks", "deepseek_v3", "deepseek_v4",
                                         "qwen3_next"),
                         [](const auto& made) { return std::string(made.param); });

TEST_P(TinySweep, EveryLengthGoesOnAsTheRunThatStoredIt) {
  expect_restores_everywhere(GetParam(), 0, 1);
}

// A function of the tokens alone: whatever prompt was there before, tokens and logits are those of
// the run that found nothing.
TEST_P(TinySweep, CodedPrefillMakesAHitOfAnyLengthTheColdRun) {
  constexpr uint32_t kBlock = 128;
  TinyGolden golden(GetParam());
  std::vector<Token> prompt(golden.tokens.begin(), golden.tokens.begin() + kTinyPrompt);
  CodingOptions coding;
  coding.prefill = PrefillMode::coded;
  coding.block_tokens = kBlock;
  coding.calibrate = false;
  GenerateOptions options;
  options.keep_logits = true;
  auto open = [&](Client& client) {
    auto made = Generator::open(std::move(*tiny::make_tiny(GetParam(), golden.seed)), client,
                                coding, soon());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  };
  auto cold_cache = open_cache(tiny_options(""));
  auto cold = open(*cold_cache)->generate(prompt, options);
  ASSERT_TRUE(cold.ok()) << cold.status().to_string();
  EXPECT_EQ(cold->reused_tokens, 0u);
  std::mt19937 rng(21);
  for (int round = 0; round < 20; ++round) {
    uint32_t cut = 1 + rng() % kTinyPrompt;
    SCOPED_TRACE("cut at " + std::to_string(cut));
    auto cache = open_cache(tiny_options(""));
    auto generator = open(*cache);
    GenerateOptions few;
    few.max_new_tokens = 8;
    ASSERT_TRUE(generator->generate(std::span(prompt).first(cut), few).ok());
    auto hit = generator->generate(prompt, options);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->cache_error, "");
    EXPECT_EQ(hit->reused_tokens % kBlock, 0u);
    EXPECT_GE(hit->reused_tokens, std::min(cut, kTinyLongest) / kBlock * kBlock);
    EXPECT_EQ(hit->tokens, cold->tokens);
    EXPECT_EQ(hit->logits, cold->logits);
  }
}

}  // namespace
}  // namespace kv
