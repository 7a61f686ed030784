// Blocks of any length, which a setting or any client's profile may ask for: what prefill computes,
// on exact rows and on codes, is what single steps compute, and a hit is the cold run. Under ASan:
// no row is read or written beside its buffer.
#include <gtest/gtest.h>

#include "codec/plan.h"
#include "engine/generator.h"
#include "tests/support/engine_memory_client.h"
#include "tests/support/engine_tiny_network.h"

namespace kv {
namespace {

// Logits after the last token: of keys and values with so many bits (0: exact) the first `stored`
// tokens, those up to `prefilled` at once on them, the others one by one.
std::vector<float> logits(uint32_t block_tokens, Network& network, std::span<const Token> tokens,
                          size_t prefilled, size_t stored = 0, uint8_t k_bits = 0,
                          uint8_t v_bits = 0) {
  CodingSettings settings;
  settings.k_bits = k_bits;
  settings.v_bits = v_bits;
  settings.raw_dtype = DType::f32;
  settings.block_tokens = block_tokens;
  auto profile = std::make_shared<const Profile>(*plain_profile(network.spec(), settings));
  auto codec = *Codec::create(network.spec(), profile);
  KvCache cache(codec, {"test", network.spec().fingerprint, profile->id()});
  for (size_t end : {stored, prefilled}) {
    if (end <= cache.tokens()) continue;
    Status s = network.prefill(tokens.first(end), cache, Deadline::max());
    EXPECT_TRUE(s.ok()) << s.to_string();
  }
  std::vector<float> out(network.vocab());
  while (cache.tokens() < tokens.size()) {
    EXPECT_TRUE(network.step(tokens[cache.tokens()], cache, out).ok());
  }
  return out;
}

class EngineBlocks : public ::testing::TestWithParam<uint32_t> {};

INSTANTIATE_TEST_SUITE_P(Lengths, EngineBlocks,
                         ::testing::Values(1, 4, 8, 12, 20, 63, 65, 100, 250, 255, 256, 300));

TEST_P(EngineBlocks, PrefillIsCloseToSingleSteps) {
  for (const char* architecture : {"llama", "gemma3"}) {
    auto one = tiny_network(architecture);
    auto tokens = byte_tokens(310, 310);
    auto expected = logits(GetParam(), *one, tokens, 0);
    for (size_t at_once : {309u, 256u, 100u, 41u}) {
      auto given = logits(GetParam(), *one, tokens, at_once);
      for (size_t i = 0; i < given.size(); ++i) {
        ASSERT_NEAR(given[i], expected[i], 1e-3) << architecture << " " << at_once << " at once";
      }
    }
  }
}

// More rows than prefill holds whole at a time, where a layer is computed in pieces.
TEST(EnginePieces, ALongPromptIsTheSameHoweverItIsCut) {
  for (const char* architecture : {"llama", "gemma3"}) {
    auto one = tiny_network(architecture);
    auto tokens = byte_tokens(1100, 310);
    auto whole = logits(100, *one, tokens, 1099);
    EXPECT_EQ(logits(100, *one, tokens, 1099, 700), whole);
    EXPECT_EQ(logits(100, *one, tokens, 1099, 100), whole);
  }
}

// Where the codes end within a chunk of the softmax, prefill takes it in two.
TEST_P(EngineBlocks, PrefillOnCodesIsCloseToSingleSteps) {
  const size_t stored = 300 / GetParam() * GetParam();
  const size_t end = std::min<size_t>(stored + GetParam() - 1, 310);  // no further block is coded
  for (const char* architecture : {"llama", "gemma3"}) {
    auto one = tiny_network(architecture);
    auto tokens = byte_tokens(end, 310);
    for (auto [k_bits, v_bits] : {std::pair<uint8_t, uint8_t>{8, 4}, {4, 0}, {0, 3}}) {
      auto expected = logits(GetParam(), *one, tokens, 0, stored, k_bits, v_bits);
      auto given = logits(GetParam(), *one, tokens, end - 1, stored, k_bits, v_bits);
      for (size_t i = 0; i < given.size(); ++i) {
        ASSERT_NEAR(given[i], expected[i], 1e-3) << architecture << " " << int{k_bits};
      }
    }
  }
}

TEST_P(EngineBlocks, AHitIsTheColdRun) {
  for (PrefillMode mode : {PrefillMode::exact, PrefillMode::coded}) {
    MemoryClient client;
    CodingOptions coding;
    coding.calibrate = false;
    coding.block_tokens = GetParam();
    coding.prefill = mode;
    auto generator = *Generator::open(tiny_network("llama"), client, coding, Deadline::max());
    GenerateOptions options;
    options.cache_waits.least = std::chrono::minutes(1);
    options.max_new_tokens = 6;
    options.keep_logits = true;
    options.stop_at_eos = false;
    auto tokens = byte_tokens(310, 310);
    auto cold = generator->generate(tokens, options);
    ASSERT_TRUE(cold.ok()) << cold.status().to_string();
    EXPECT_EQ(cold->cache_error, "");
    EXPECT_TRUE(std::all_of(cold->logits.begin(), cold->logits.end(),
                            [](float v) { return std::isfinite(v); }));
    auto hit = generator->generate(tokens, options);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    bool exact = mode == PrefillMode::exact;
    EXPECT_EQ(hit->reused_tokens, exact ? 309 : 309 - 309 % GetParam());
    EXPECT_EQ(hit->logits, cold->logits);
  }
}

}  // namespace
}  // namespace kv
