// The real models through the tiered cache: the same prompt restored from RAM, and from SSD after a
// restart, gives the cold run's very tokens and logits, at random lengths. Labelled `model`.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <sstream>

#include "cachesvc/tiered_cache.h"
#include "engine/generator.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

constexpr uint32_t kRandomLengths = 8;
constexpr uint32_t kSeed = 11;

struct RestoredModel {
  const char* variable;
  uint32_t longest;
};

class EngineRestore : public ::testing::TestWithParam<RestoredModel> {
 protected:
  void SetUp() override {
    const char* path = std::getenv(GetParam().variable);
    if (path == nullptr) GTEST_SKIP() << GetParam().variable << " is not set: no model to run";
    auto loaded = Model::load(path);
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    model_ = *loaded;
    std::ifstream in("/usr/share/common-licenses/GPL-3");
    std::stringstream text;
    text << in.rdbuf();
    auto ids = model_->tokenizer().encode(text.str());
    ASSERT_TRUE(ids.ok());
    if (ids->size() < GetParam().longest) GTEST_SKIP() << "no /usr/share/common-licenses/GPL-3";
    text_ = std::move(*ids);
  }

  // A new process' worth of cache and engine on the same directory.
  void start(const CodingOptions& coding) {
    generator_.reset();
    cache_.reset();
    CacheOptions options;
    options.ssd_dir = dir_.store();
    auto cache = TieredCache::create(options, "restore");
    ASSERT_TRUE(cache.ok()) << cache.status().to_string();
    cache_ = std::move(*cache);
    auto generator = Generator::open(model_, *cache_, coding, 2, Deadline::max());
    ASSERT_TRUE(generator.ok()) << generator.status().to_string();
    generator_ = std::move(*generator);
  }

  GenerateResult run(const std::vector<Token>& prompt, bool lookup) {
    GenerateOptions options;
    options.cache_waits.least = std::chrono::minutes(1);
    options.max_new_tokens = 6;
    options.keep_logits = true;
    options.stop_at_eos = false;
    options.use_lookup = lookup;
    options.commit_answer = false;
    options.wait_for = Durability::spilled;
    auto result = generator_->generate(prompt, options);
    EXPECT_TRUE(result.ok()) << result.status().to_string();
    if (!result.ok()) return {};
    EXPECT_EQ(result->cache_error, "");
    return std::move(*result);
  }

  static void expect_equal(const GenerateResult& hit, const GenerateResult& cold, bool from_ram) {
    EXPECT_EQ(hit.reused_tokens + 1, cold.prompt_tokens);
    EXPECT_EQ(hit.tier == Tier::ram, from_ram) << "prompt of " << cold.prompt_tokens;
    EXPECT_EQ(hit.tokens, cold.tokens) << "prompt of " << cold.prompt_tokens;
    EXPECT_EQ(hit.logits, cold.logits) << "prompt of " << cold.prompt_tokens;
  }

  // Every prompt begins elsewhere in the text, so that none is the prefix of another.
  void round(const CodingOptions& coding, uint32_t lengths) {
    std::mt19937 random(kSeed);
    std::vector<std::vector<Token>> prompts;
    std::vector<GenerateResult> cold;
    start(coding);
    for (uint32_t i = 0; i < lengths; ++i) {
      uint32_t length = 2 + random() % (GetParam().longest - 2);
      uint32_t first = 1 + random() % static_cast<uint32_t>(text_.size() - length);
      prompts.emplace_back(text_.begin() + first, text_.begin() + first + length);
      cold.push_back(run(prompts.back(), false));
      expect_equal(run(prompts.back(), true), cold.back(), true);
    }
    start(coding);
    for (uint32_t i = 0; i < lengths; ++i) expect_equal(run(prompts[i], true), cold[i], false);
  }

  TempDir dir_;
  std::shared_ptr<const Model> model_;
  std::vector<Token> text_;
  std::unique_ptr<TieredCache> cache_;
  std::unique_ptr<Generator> generator_;
};

TEST_P(EngineRestore, RandomLengthsFromRamAndSsdOnCodes) { round({}, kRandomLengths); }

TEST_P(EngineRestore, RandomLengthsFromRamAndSsdExactly) {
  CodingOptions exact;
  exact.exact = true;
  round(exact, 3);
}

// Two blocks and a tail; more than two windows of 512 tokens.
INSTANTIATE_TEST_SUITE_P(Models, EngineRestore,
                         ::testing::Values(RestoredModel{"KV_SMOLLM2_GGUF", 600},
                                           RestoredModel{"KV_GEMMA3_GGUF", 1400}),
                         [](const auto& given) { return std::string(given.param.variable); });

}  // namespace
}  // namespace kv
