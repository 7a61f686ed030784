// The real models (KV_SMOLLM2_GGUF, KV_GEMMA3_GGUF) on the real cache: with coded prefill a hit of
// any length gives the cold run's bytes and tokens; with exact prefill what a hit on a shorter
// prefix changes, as figures.
#include <gmock/gmock.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/generator.h"
#include "engine/model_network.h"
#include "engine/prompt.h"
#include "tests/support/engine_stored_rows.h"

namespace kv {
namespace {

struct Subject {
  const char* name;  ///< of its golden file too
  const char* path_variable;
  size_t prompt_tokens;  ///< Gemma's window is 512
};

std::shared_ptr<const Model> load(const char* path) {
  auto loaded = Model::load(path);
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  return loaded.ok() ? *loaded : nullptr;
}

#define NEED_MODEL(model, variable)                                         \
  const char* path = std::getenv(variable);                                 \
  if (path == nullptr) GTEST_SKIP() << variable << " is not set: no model"; \
  auto model = load(path);                                                  \
  ASSERT_TRUE(model)

// The first tokens of a text that is not the calibration's.
std::vector<Token> text_tokens(const std::string& name) {
  std::vector<Token> out;
  std::ifstream in(std::string(KV_GOLDEN_DIR) + "/engine/" + name + "_logits.txt");
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    out.emplace_back();
    std::istringstream(line) >> out.back();
  }
  return out;
}

CodingOptions coding_of(const std::string& name, PrefillMode mode, uint32_t block_tokens) {
  CodingOptions coding;
  coding.prefill = mode;
  coding.block_tokens = block_tokens;
  coding.calibration_file =
      testing::TempDir() + "/engine_coded_test_" + name + std::to_string(block_tokens);
  return coding;
}

CacheOptions large_options() {
  CacheOptions o = small_options();
  o.ram_budget_bytes = 512ull << 20;
  return o;
}

class EngineCoded : public testing::TestWithParam<Subject> {};

TEST_P(EngineCoded, AHitOfAnyLengthGivesTheColdRunsBytesAndTokens) {
  NEED_MODEL(model, GetParam().path_variable);
  constexpr uint32_t kBlock = 64;
  CodingOptions coding = coding_of(GetParam().name, PrefillMode::coded, kBlock);
  auto prompt = text_tokens(GetParam().name);
  ASSERT_GE(prompt.size(), GetParam().prompt_tokens);
  prompt.resize(GetParam().prompt_tokens);
  GenerateOptions options;
  options.cache_waits.least = std::chrono::minutes(1);
  options.max_new_tokens = 24;  // a block completes on the way
  options.keep_logits = true;
  options.stop_at_eos = false;
  auto open = [&](Client& client) {
    auto made = Generator::open(model, client, coding, 2, Deadline::max());
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    return std::move(*made);
  };
  auto cold_cache = open_cache(large_options());
  auto generator = open(*cold_cache);
  auto cold = generator->generate(prompt, options);
  ASSERT_TRUE(cold.ok()) << cold.status().to_string();
  EXPECT_EQ(cold->reused_tokens, 0u);
  auto all = prompt;
  all.insert(all.end(), cold->tokens.begin(), cold->tokens.end());
  auto expected = stored_rows(*cold_cache, generator->opened(), all);
  EXPECT_EQ(expected.tokens, all.size() / kBlock * kBlock);
  std::mt19937 rng(20);
  GenerateOptions first_options;
  first_options.cache_waits.least = std::chrono::minutes(1);
  first_options.max_new_tokens = 8;
  for (int round = 0; round < 8; ++round) {
    size_t cut = 1 + rng() % prompt.size();
    SCOPED_TRACE("cut at " + std::to_string(cut));
    auto cache = open_cache(large_options());
    auto other = open(*cache);
    auto first = prompt;
    first.resize(cut);
    ASSERT_TRUE(other->generate(first, first_options).ok());
    auto hit = other->generate(prompt, options);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->cache_error, "");
    EXPECT_EQ(hit->reused_tokens % kBlock, 0u);
    EXPECT_GE(hit->reused_tokens, std::min(cut, prompt.size() - 1) / kBlock * kBlock);
    EXPECT_EQ(hit->tokens, cold->tokens);
    EXPECT_EQ(hit->logits, cold->logits);
    EXPECT_EQ(hit->prompt_objects, cold->prompt_objects);
    auto rows = stored_rows(*cache, other->opened(), all);
    expect_equal_bytes(model->spec(), expected, rows);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineCoded,
                         testing::Values(Subject{"smollm2", "KV_SMOLLM2_GGUF", 300},
                                         Subject{"gemma3", "KV_GEMMA3_GGUF", 684}),
                         [](const auto& made) { return std::string(made.param.name); });

std::vector<double> log_probabilities(const std::vector<float>& logits) {
  double top = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (float l : logits) sum += std::exp(double{l} - top);
  std::vector<double> out;
  for (float l : logits) out.push_back(double{l} - top - std::log(sum));
  return out;
}

// Logits of the 32 tokens after `length`, on a cache of the first `length`.
std::vector<std::vector<float>> forced(Network& network, KvCache& cache,
                                       std::span<const Token> tokens, size_t length) {
  EXPECT_TRUE(compute_prompt(network, tokens.first(length), cache, Deadline::max()).ok());
  std::vector<std::vector<float>> out;
  for (size_t i = length; i < length + 32; ++i) {
    out.emplace_back(network.vocab());
    EXPECT_TRUE(network.step(tokens[i], cache, out.back()).ok());
  }
  return out;
}

struct ShorterHits {
  Subject subject;  // prompt_tokens: of the stored prompt
  std::vector<uint32_t> cuts;
  double divergence;  // at most
};

class EngineExact : public testing::TestWithParam<ShorterHits> {};
INSTANTIATE_TEST_SUITE_P(
    Models, EngineExact,
    testing::Values(ShorterHits{{"smollm2", "KV_SMOLLM2_GGUF", 480}, {100, 256, 300, 420}, 0.005},
                    ShorterHits{
                        {"gemma3", "KV_GEMMA3_GGUF", 700}, {100, 300, 512, 560, 650}, 0.001}),
    [](const auto& made) { return std::string(made.param.subject.name); });

TEST_P(EngineExact, AShorterHitChangesLittle) {
  const Subject& subject = GetParam().subject;
  NEED_MODEL(model, subject.path_variable);
  auto tokens = text_tokens(subject.name);
  auto network = make_network(model, 2);
  ASSERT_TRUE(network.ok());
  CacheOptions options = large_options();
  options.block_end_interval = 1;  // so that every cut of a window is served
  auto cache = open_cache(options);
  auto stored = StoredPrompts::open(
      **network, *cache, coding_of(subject.name, PrefillMode::exact, 256), Deadline::max());
  ASSERT_TRUE(stored.ok()) << stored.status().to_string();
  const size_t length = subject.prompt_tokens;
  KvCache whole = stored->new_cache(0);
  auto cold = forced(**network, whole, tokens, length);
  ASSERT_TRUE(stored
                  ->store(whole, stored->storable(whole, whole.tokens()),
                          {{}, Durability::accepted, soon(), soon()})
                  .ok());
  for (uint32_t cut : GetParam().cuts) {
    std::vector<Token> query(tokens.begin(), tokens.begin() + cut);
    query.push_back(tokens[cut]);
    KvCache taken = stored->new_cache(0);
    auto hit = stored->fetch(query, **network, 1, taken, soon());
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    ASSERT_EQ(hit->tokens, cut);
    auto logits = forced(**network, taken, tokens, length);
    double divergence = 0;
    int same = 0;
    for (size_t i = 0; i < cold.size(); ++i) {
      auto p = log_probabilities(cold[i]), q = log_probabilities(logits[i]);
      for (size_t t = 0; t < p.size(); ++t) divergence += std::exp(p[t]) * (p[t] - q[t]);
      same += std::max_element(p.begin(), p.end()) - p.begin() ==
              std::max_element(q.begin(), q.end()) - q.begin();
    }
    divergence /= static_cast<double>(cold.size());
    std::printf("hit of %u of %zu tokens: KLD %.6f, same top-1 %d of %zu\n", cut, length,
                divergence, same, cold.size());
    EXPECT_LT(divergence, GetParam().divergence);
    EXPECT_GT(divergence, 0) << "the hit changed nothing: was it one?";
    EXPECT_GE(same, 29);
  }
}

}  // namespace
}  // namespace kv
