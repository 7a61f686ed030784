// Every length up to 600 of every tiny model: the same bytes from RAM and from SSD; the rest of the
// prompt computed behind every third from RAM and every fifth from SSD, the same 64 tokens. Each
// length that one store allows likewise. And with coded prefill: a hit wherever another prompt
// ended.
#include "engine/generator.h"
#include "tests/support/engine_stored_rows.h"
#include "tests/support/engine_tiny.h"

namespace kv {
namespace {

class TinySweep : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, TinySweep,
                         testing::Values("sinks", "chunks", "deepseek_v3", "deepseek_v4",
                                         "qwen3_next"),
                         [](const auto& made) { return std::string(made.param); });

TEST_P(TinySweep, EveryLengthGoesOnAsTheRunThatStoredIt) {
  expect_restores_everywhere(GetParam(), 0, 1, 3, 5);
}

// DeepSeek-V3's latents allow every length; the test above computes on after each of them.
TEST_P(TinySweep, OneStoreServesExactlyWhatItHolds) {
  expect_one_store_serves(GetParam(), GetParam() == std::string("deepseek_v3") ? 20 : 1);
}

// A function of the tokens alone: whatever prompt was there before, in RAM or on the SSD, tokens,
// logits and stored bytes are those of the run that found nothing.
TEST_P(TinySweep, CodedPrefillMakesAHitOfAnyLengthTheColdRun) {
  constexpr uint32_t kBlock = 128;
  TinyGolden golden(GetParam());
  std::vector<Token> prompt(golden.tokens.begin(), golden.tokens.begin() + kTinyPrompt);
  CodingOptions coding;
  coding.prefill = PrefillMode::coded;
  coding.block_tokens = kBlock;
  coding.calibrate = false;
  GenerateOptions options;
  options.cache_waits.least = std::chrono::minutes(1);
  options.keep_logits = true;
  auto open = [&](Client& client) {
    auto made = Generator::open(std::move(*tiny::make_tiny(GetParam(), golden.seed)), client,
                                coding, soon());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  };
  auto cold_cache = open_cache(tiny_options(""));
  auto first = open(*cold_cache);
  auto cold = first->generate(prompt, options);
  ASSERT_TRUE(cold.ok()) << cold.status().to_string();
  EXPECT_EQ(cold->reused_tokens, 0u);
  auto all = prompt;
  all.insert(all.end(), cold->tokens.begin(), cold->tokens.end());
  auto expected = stored_rows(*cold_cache, first->opened(), all);
  EXPECT_EQ(expected.tokens, all.size() / kBlock * kBlock);
  std::mt19937 rng(21);
  for (int round = 0; round < 20; ++round) {
    uint32_t cut = 1 + rng() % kTinyPrompt;
    SCOPED_TRACE("cut at " + std::to_string(cut));
    TempDir dir;
    auto cache = open_cache(tiny_options(dir.store()));
    auto generator = open(*cache);
    GenerateOptions few;
    few.cache_waits.least = std::chrono::minutes(1);
    few.max_new_tokens = 8;
    few.wait_for = Durability::spilled;
    ASSERT_TRUE(generator->generate(std::span(prompt).first(cut), few).ok());
    const bool from_ssd = round % 2 == 1;
    if (from_ssd) {
      generator.reset();
      cache.reset();
      cache = open_cache(tiny_options(dir.store()));
      generator = open(*cache);
    }
    auto hit = generator->generate(prompt, options);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->cache_error, "");
    EXPECT_EQ(hit->reused_tokens % kBlock, 0u);
    EXPECT_GE(hit->reused_tokens, std::min(cut, kTinyLongest) / kBlock * kBlock);
    if (hit->reused_tokens > 0) {
      EXPECT_EQ(hit->tier, from_ssd ? Tier::ssd : Tier::ram);
    }
    EXPECT_EQ(hit->tokens, cold->tokens);
    EXPECT_EQ(hit->logits, cold->logits);
    EXPECT_EQ(hit->prompt_objects, cold->prompt_objects);
    auto rows = stored_rows(*cache, generator->opened(), all);
    expect_equal_bytes(generator->network().spec(), expected, rows);
  }
}

}  // namespace
}  // namespace kv
