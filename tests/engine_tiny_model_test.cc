// The tiny models against transformers, and through the real cache: at every length that what was
// stored allows, from RAM and from SSD, they go on as the run that stored them.
#include <array>

#include "engine/batch.h"
#include "engine/generator.h"
#include "tests/support/engine_tiny.h"

namespace kv {
namespace {

class TinyModels : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, TinyModels,
                         testing::Values("sinks", "chunks", "deepseek_v3", "deepseek_v4",
                                         "qwen3_next"),
                         [](const auto& made) { return std::string(made.param); });

constexpr float kLogitTolerance = 1e-4f;
constexpr uint32_t kStride = 37;

TEST_P(TinyModels, LogitsAndTokensAreTransformers) {
  TinyBench bench(GetParam(), 0, open_cache(tiny_options("")));
  const TinyGolden& golden = bench.golden;
  KvCache sequence = bench.empty();
  size_t compared = 0;
  TinyRun run = bench.finish(sequence, [&](uint32_t at, const std::vector<float>& logits) {
    if (at < kTinyPrompt) {
      auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      EXPECT_EQ(best, golden.best[at]) << at;
    }
    auto expected = golden.logits.find(at);
    if (expected == golden.logits.end()) return;
    for (size_t i = 0; i < golden.ids.size(); ++i, ++compared) {
      EXPECT_NEAR(logits[golden.ids[i]], expected->second[i], kLogitTolerance) << at;
    }
  });
  EXPECT_EQ(run.tokens, golden.greedy);
  EXPECT_EQ(compared, golden.logits.size() * golden.ids.size());
  EXPECT_GT(compared, 600u);
}

TEST_P(TinyModels, GoOnAfterRestoring) { expect_restores_everywhere(GetParam(), 0, kStride); }

TEST_P(TinyModels, GoOnAfterRestoringCoded) {
  expect_restores_everywhere(GetParam(), 4, 2 * kStride);
}

TEST_P(TinyModels, GoOnAfterRestoringTransformed) {
  expect_restores_everywhere(GetParam(), kTransformWord, 8 * kStride);
}

// Codes asked for: rows with separate K and V get them, nothing else does.
TEST_P(TinyModels, OnlyPlainRowsAreCoded) {
  TinyBench bench(GetParam(), 4, open_cache(tiny_options("")));
  std::string name = GetParam();
  EXPECT_EQ(bench.all_raw(), name == "deepseek_v3" || name == "deepseek_v4");
  for (const CodingReport& r : bench.opened.parts) {
    bool coded = r.kind == PartKind::full || name == "sinks" || name == "chunks";
    EXPECT_EQ(r.requested_k_bits, 4);
    EXPECT_EQ(r.active_k_bits, coded ? 4 : 0);
    EXPECT_EQ(r.reason.empty(), coded) << r.reason;
  }
}

TEST_P(TinyModels, OneStoreServesExactlyWhatItHolds) {
  expect_one_store_serves(GetParam(), kStride);
}

// A state of another position or size is a miss, by name.
TEST_P(TinyModels, ForeignStatesAreRefused) {
  TinyBench bench(GetParam(), 0, open_cache(tiny_options("")));
  KvCache sequence = bench.empty();
  auto prompt = std::span(bench.golden.tokens).first(150);
  ASSERT_TRUE(bench.network->prefill(prompt, sequence, soon()).ok());
  EXPECT_TRUE(bench.network->check(sequence).ok());
  for (uint32_t l = 0; l < bench.network->spec().layers.size(); ++l) {
    const auto& parts = bench.network->spec().layers[l].parts;
    for (uint32_t p = 0; p < parts.size(); ++p) {
      if (parts[p].kind != PartKind::pooled && parts[p].kind != PartKind::state) continue;
      std::string where = "layer " + std::to_string(l) + " part " + std::to_string(p);
      std::vector<uint8_t> good = sequence.state(l, p);
      ASSERT_FALSE(good.empty()) << where;
      for (bool shorter : {true, false}) {
        std::vector<uint8_t>& bytes = sequence.state(l, p);
        if (shorter)
          bytes.pop_back();
        else
          ++bytes[0];  // its position
        Status s = bench.network->check(sequence);
        EXPECT_EQ(s.code(), StatusCode::invalid_argument);
        EXPECT_NE(s.to_string().find(where), std::string::npos) << s.to_string();
        bytes = good;
      }
    }
  }
}

// The whole way of a request: cold, from RAM, and from the SSD by another process's cache.
TEST_P(TinyModels, GeneratedTokensAreTransformers) {
  TempDir dir;
  TinyGolden golden(GetParam());
  std::vector<Token> prompt(golden.tokens.begin(), golden.tokens.begin() + kTinyPrompt);
  GenerateOptions options;
  options.cache_waits.least = std::chrono::minutes(1);
  options.keep_logits = true;
  options.wait_for = Durability::durable;
  GenerateResult cold;
  for (bool reopened : {false, true}) {
    auto cache = open_cache(tiny_options(dir.store()));
    CodingOptions coding;
    coding.exact = true;
    auto network = tiny::make_tiny(GetParam(), golden.seed);
    auto generator = Generator::open(std::move(*network), *cache, coding, soon());
    ASSERT_TRUE(generator.ok()) << generator.status().to_string();
    if (!reopened) {
      auto result = (*generator)->generate(prompt, options);
      ASSERT_TRUE(result.ok()) << result.status().to_string();
      cold = std::move(*result);
      EXPECT_EQ(cold.tokens, golden.greedy);
      EXPECT_EQ(cold.cache_error, "");
      EXPECT_EQ(cold.level, Durability::durable);
    }
    auto hit = (*generator)->generate(prompt, options);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->reused_tokens, kTinyLongest);
    EXPECT_EQ(hit->tier, reopened ? Tier::ssd : Tier::ram);
    EXPECT_EQ(hit->tokens, cold.tokens);
    EXPECT_EQ(hit->logits, cold.logits);
    EXPECT_EQ(hit->cache_error, "");
  }
}

// Rows that join one after the other, empty or over stored prefixes that share a block, compute
// what each computes by itself.
TEST_P(TinyModels, BatchedRowsAreSingleRuns) {
  constexpr uint32_t kRows = 5, kTokens = 150;
  TinyBench bench(GetParam(), 4, open_cache(tiny_options("")));
  std::vector<std::vector<float>> single(kRows);
  Batch batch(*bench.network);
  std::vector<Batch::Row*> rows;
  KvCache sequence = bench.empty();
  for (uint32_t n : {130u, 198u}) {
    auto stored = std::span(bench.golden.tokens).first(n);
    ASSERT_TRUE(bench.network->prefill(stored, sequence, soon()).ok());
    bench.store(sequence);
  }
  auto prefix_of = [](uint32_t r) { return std::array{0u, 130u, 198u}[r % 3]; };
  auto token_of = [&](uint32_t r, uint32_t at) { return bench.golden.tokens[90 * r + at % 90]; };
  auto begin = [&](uint32_t r) {
    KvCache cache = bench.empty();
    if (prefix_of(r) == 0) return cache;
    FetchReply reply = bench.fetch(prefix_of(r));
    EXPECT_EQ(reply.tokens, prefix_of(r));
    EXPECT_TRUE(cache.restore(std::move(reply.lease), bench.prompt()).ok());
    return cache;
  };
  for (uint32_t r = 0; r < kRows; ++r) {
    KvCache alone = begin(r);
    single[r].resize(bench.network->vocab());
    while (alone.tokens() < prefix_of(r) + kTokens) {
      ASSERT_TRUE(bench.network->step(token_of(r, alone.tokens()), alone, single[r]).ok());
    }
  }
  for (uint32_t step = 0, left = kRows; left > 0; ++step) {
    if (step % 20 == 0 && rows.size() < kRows) {
      auto row = std::make_unique<Batch::Row>(begin(static_cast<uint32_t>(rows.size())), 0);
      rows.push_back(*batch.join(std::move(row)));
    }
    for (uint32_t r = 0; r < rows.size(); ++r) {
      if (rows[r] != nullptr) rows[r]->token = token_of(r, rows[r]->cache.tokens());
    }
    batch.step();
    for (uint32_t r = 0; r < rows.size(); ++r) {
      if (rows[r] == nullptr || rows[r]->cache.tokens() < prefix_of(r) + kTokens) continue;
      EXPECT_TRUE(rows[r]->status.ok()) << rows[r]->status.to_string();
      EXPECT_EQ(rows[r]->logits, single[r]) << r;
      batch.leave(rows[r]);
      rows[r] = nullptr;
      --left;
    }
  }
}

// A second conversation on a stored system prompt, whose end the first one named or nobody did: on
// every kind of cache it goes on from what is stored, with a cold run's tokens.
TEST_P(TinyModels, TheSecondQuestionOnASystemPromptHits) {
  constexpr uint32_t kSystem = 500;
  const TinyGolden golden(GetParam());
  std::vector<Token> first(golden.tokens.begin(), golden.tokens.begin() + 560), second = first;
  for (uint32_t at = kSystem; at < second.size(); ++at) second[at] = first[at - 300];
  GenerateOptions options;
  options.cache_waits.least = std::chrono::minutes(1);
  options.max_new_tokens = 8;
  options.keep_logits = true;
  auto ask = [&](Client& cache, const std::vector<Token>& prompt, const GenerateOptions& how) {
    CodingOptions coding;
    coding.k_bits = coding.v_bits = 0;
    coding.block_tokens = 128;
    auto generator =
        Generator::open(*tiny::make_tiny(GetParam(), golden.seed), cache, coding, soon());
    KV_CHECK(generator.ok());
    auto result = (*generator)->generate(prompt, how);
    KV_CHECK(result.ok());
    EXPECT_EQ(result->cache_error, "");
    return std::move(*result);
  };
  CacheOptions by_default = tiny_options("");
  by_default.block_end_interval = CacheOptions().block_end_interval;
  const auto cold = ask(*open_cache(by_default), second, options);
  for (bool named : {false, true}) {
    SCOPED_TRACE(named);
    auto cache = open_cache(by_default);
    GenerateOptions naming = options;
    if (named) naming.ends = {kSystem};
    const auto told = ask(*cache, first, naming).ends;
    if (named) {
      EXPECT_EQ(told, (std::vector<NamedEnd>{{kSystem, true, ""}}));
    }
    const auto hit = ask(*cache, second, options);
    EXPECT_GE(hit.reused_tokens, named ? kSystem : kSystem / 2) << hit.reason;
    EXPECT_LE(hit.reused_tokens, kSystem);
    EXPECT_EQ(hit.tokens, cold.tokens);
    float most = 0;
    for (size_t i = 0; i < hit.logits.size(); ++i) {
      most = std::max(most, std::abs(hit.logits[i] - cold.logits[i]));
    }
    EXPECT_LE(most, 1e-3f);
  }
}

}  // namespace
}  // namespace kv
