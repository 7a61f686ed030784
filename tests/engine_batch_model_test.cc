// Batches on the real models: prompts over one beginning, decoded together and one by one.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cachesvc/tiered_cache.h"
#include "engine/calibration.h"
#include "engine/generator.h"

namespace kv {
namespace {

class EngineBatchModel : public testing::TestWithParam<const char*> {};

TEST_P(EngineBatchModel, RowsOverOneBeginningGetTheirOwnTokensAndLogits) {
  const char* path = std::getenv(GetParam());
  if (path == nullptr) GTEST_SKIP() << GetParam() << " names no model file";
  auto model = Model::load(path);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  auto text = *(*model)->tokenizer().encode(kCalibrationText);
  std::vector<std::vector<Token>> prompts;
  for (size_t i = 0; i < 5; ++i) {  // the last one has a beginning of its own
    const size_t shared = i < 4 ? 600 : 40;
    prompts.emplace_back(text.begin(), text.begin() + static_cast<ptrdiff_t>(shared));
    auto end = text.begin() + static_cast<ptrdiff_t>(700 + 50 * i);
    prompts.back().insert(prompts.back().end(), end, end + 3 + static_cast<ptrdiff_t>(i));
  }
  CodingOptions coding;
  coding.calibrate = false;
  GenerateOptions options;
  options.cache_waits.least = std::chrono::minutes(1);
  options.max_new_tokens = 12;
  options.keep_logits = true;
  options.stop_at_eos = false;
  CacheOptions in_ram;
  in_ram.ram_budget_bytes = 512u << 20;
  auto cache = TieredCache::create(in_ram, "batch");
  ASSERT_TRUE(cache.ok()) << cache.status().to_string();
  auto generator = Generator::open(*model, **cache, coding, 2, Deadline::max());
  ASSERT_TRUE(generator.ok()) << generator.status().to_string();
  std::vector<GenerateResult> own;
  for (const auto& prompt : prompts) {
    auto result = (*generator)->generate(prompt, options);
    ASSERT_TRUE(result.ok()) << result.status().to_string();
    own.push_back(std::move(*result));
  }
  auto together = (*generator)->generate_all(prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i) {
    ASSERT_TRUE(together[i].ok()) << together[i].status().to_string();
    EXPECT_EQ(together[i]->reused_tokens, prompts[i].size() - 1);
    EXPECT_EQ(together[i]->tokens, own[i].tokens) << i;
    EXPECT_TRUE(together[i]->logits == own[i].logits) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineBatchModel,
                         testing::Values("KV_SMOLLM2_GGUF", "KV_GEMMA3_GGUF"));

}  // namespace
}  // namespace kv
