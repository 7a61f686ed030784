// Generation on a tiny random model: what is attended to is what is stored, at every cut.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/generator.h"
#include "engine/model_network.h"
#include "tests/support/engine_hits.h"
#include "tests/support/engine_memory_client.h"
#include "tests/support/tiny_model.h"

namespace kv {
namespace {

std::vector<Token> prompt_of(size_t n, uint32_t seed = 1) {
  std::mt19937 random(seed);
  std::vector<Token> out(n);
  for (Token& t : out) t = static_cast<Token>(random() % 256);
  return out;
}

CodingOptions coded(uint8_t k_bits = 4, uint8_t v_bits = 4) {
  CodingOptions options;
  options.k_bits = k_bits;
  options.v_bits = v_bits;
  options.calibrate = false;
  return options;
}

CodingOptions exact() {
  CodingOptions options;
  options.exact = true;
  return options;
}

GenerateOptions eight_tokens() {
  GenerateOptions options;
  options.max_new_tokens = 8;
  options.keep_logits = true;
  options.stop_at_eos = false;
  return options;
}

std::unique_ptr<Generator> open(Client& client, const CodingOptions& coding, uint32_t threads = 1) {
  auto made = Generator::open(tiny_model(), client, coding, threads, Deadline::max());
  KV_CHECK(made.ok());
  return std::move(*made);
}

GenerateResult run(Generator& g, const std::vector<Token>& prompt, const GenerateOptions& options) {
  auto result = g.generate(prompt, options);
  EXPECT_TRUE(result.ok()) << result.status().to_string();
  return result.ok() ? std::move(*result) : GenerateResult();
}

// Lengths round the block's and the short path's edges.
const size_t kLengths[] = {1,   2,   3,   5,   6,   33,  34,  35,  250,
                           255, 256, 257, 258, 300, 505, 512, 513, 600};

void expect_every_hit_equals_cold(const CodingOptions& coding) {
  for (size_t n : kLengths) {
    MemoryClient client;
    auto generator = open(client, coding, 2);
    auto prompt = prompt_of(n, static_cast<uint32_t>(n));
    auto cold = run(*generator, prompt, eight_tokens());
    EXPECT_EQ(cold.reused_tokens, 0u);
    EXPECT_EQ(cold.cache_error, "");
    auto single = open(client, coding, 1);
    auto hit = run(*single, prompt, eight_tokens());
    EXPECT_EQ(hit.reused_tokens, n - 1);
    EXPECT_EQ(hit.tokens, cold.tokens) << n;
    EXPECT_EQ(hit.logits, cold.logits) << n;
    EXPECT_EQ(hit.prompt_objects, cold.prompt_objects) << n;
    EXPECT_EQ(hit.stored_bytes, cold.stored_bytes) << n;
  }
}

TEST(EngineGenerator, HitEqualsColdOnCodes) { expect_every_hit_equals_cold(coded()); }
TEST(EngineGenerator, HitEqualsColdOnMixedBits) { expect_every_hit_equals_cold(coded(8, 0)); }
TEST(EngineGenerator, HitEqualsColdOnStreams) {
  TempDir dir;
  CodingOptions options = coded();
  options.profile_file = dir.path() + "/profile";
  write_transforms(options.profile_file, tiny_model()->spec());
  expect_every_hit_equals_cold(options);
}
TEST(EngineGenerator, HitEqualsColdRawHalf) { expect_every_hit_equals_cold(coded(0, 0)); }
TEST(EngineGenerator, HitEqualsColdExact) { expect_every_hit_equals_cold(exact()); }

TEST(EngineGenerator, TheProfileIsAttendedTo) {
  MemoryClient a, b;
  auto prompt = prompt_of(600);
  auto x = run(*open(a, coded(2, 2)), prompt, eight_tokens());
  auto y = run(*open(b, exact()), prompt, eight_tokens());
  EXPECT_NE(x.logits, y.logits);  // else nothing was coded
  EXPECT_LT(x.block_bytes * 4, y.block_bytes);
}

// In exact mode a shorter hit changes nothing but the order of summation.
TEST(EngineGenerator, EveryShorterHitIsCloseInExactMode) {
  auto prompt = prompt_of(300);
  MemoryClient client;
  auto generator = open(client, exact());
  auto cold = run(*generator, prompt, eight_tokens());
  for (uint32_t n : {1u, 31u, 128u, 255u, 256u, 257u, 270u, 298u}) {
    client.max_tokens = n;
    GenerateOptions options = eight_tokens();
    options.commit = false;
    auto hit = run(*generator, prompt, options);
    EXPECT_EQ(hit.reused_tokens, n);
    for (size_t i = 0; i < 267; ++i) EXPECT_NEAR(hit.logits[i], cold.logits[i], 1e-3);
  }
}

// A prompt that branches off inside a block begins its own block with the other's code rows.
TEST(EngineGenerator, ABranchCopiesCodesAndThenHitsItself) {
  for (const CodingOptions& coding : {coded(), coded(4, 0), exact()}) {
    MemoryClient client;
    auto generator = open(client, coding);
    auto first = prompt_of(520, 1);
    run(*generator, first, eight_tokens());
    for (size_t shared : {2u, 100u, 300u}) {
      auto second = first;
      auto other = prompt_of(520, 9);
      std::copy(other.begin() + static_cast<ptrdiff_t>(shared), other.end(),
                second.begin() + static_cast<ptrdiff_t>(shared));
      second[shared] = (first[shared] + 1) % 256;
      auto cold = run(*generator, second, eight_tokens());
      EXPECT_EQ(cold.reused_tokens, shared);
      EXPECT_EQ(cold.cache_error, "");
      auto hit = run(*generator, second, eight_tokens());
      EXPECT_EQ(hit.reused_tokens, 519u);
      EXPECT_EQ(hit.tokens, cold.tokens);
      EXPECT_EQ(hit.logits, cold.logits);
    }
  }
}

TEST(EngineGenerator, TheAnswerIsStoredForTheNextTurn) {
  MemoryClient client;
  auto generator = open(client, coded());
  auto prompt = prompt_of(250);
  auto options = eight_tokens();
  options.max_new_tokens = 20;  // the first block completes while generating
  auto first = run(*generator, prompt, options);
  prompt.insert(prompt.end(), first.tokens.begin(), first.tokens.end());
  auto next = run(*generator, prompt, eight_tokens());
  EXPECT_EQ(next.reused_tokens, 269u);  // all rows that were computed
}

// What another run stored under the same names stays: a run that computes all of it anew answers
// from its own rows, and who fetches gets the first one's.
TEST(EngineGenerator, TheFirstStoreOfAPromptStays) {
  MemoryClient client;
  auto generator = open(client, coded());
  auto base = prompt_of(400);
  run(*generator, base, eight_tokens());  // blocks computed after exact rows
  auto grown = base;
  for (Token t : prompt_of(200, 5)) grown.push_back(t);
  auto after_codes = run(*generator, grown, eight_tokens());
  EXPECT_EQ(after_codes.reused_tokens, 400u);
  auto options = eight_tokens();
  options.use_lookup = false;
  auto cold = run(*generator, grown, options);
  EXPECT_EQ(cold.cache_error, "");
  EXPECT_EQ(cold.level, Durability::accepted);
  auto hit = run(*generator, grown, eight_tokens());
  EXPECT_EQ(hit.reused_tokens, 599u);
  EXPECT_EQ(hit.logits, after_codes.logits);
  EXPECT_NE(cold.logits, after_codes.logits);  // rows computed in another order of summation
}

// A copy of `o` with the last scale of its first coded plane, or the last exact value, infinite.
ObjectPtr with_infinity(const Object& o) {
  Object out = o;
  for (Plane& p : out.planes) {
    std::vector<uint8_t> bytes(p.bytes.data(), p.bytes.data() + p.bytes.size());
    bytes[bytes.size() - 2] = 0x00;  // fp16, little-endian
    bytes[bytes.size() - 1] = 0x7C;
    p.bytes = Bytes::owning(std::move(bytes));
    break;
  }
  return std::make_shared<const Object>(std::move(out));
}

// Attention on it would give silent zeros.
TEST(EngineGenerator, AValueThatIsNotFiniteIsAMiss) {
  for (size_t n : {300u, 200u}) {  // a block's scale, a tail's value
    MemoryClient client;
    auto generator = open(client, coded());
    auto cold = run(*generator, prompt_of(n), eight_tokens());
    for (auto& [id, object] : client.objects) object = with_infinity(*object);
    auto options = eight_tokens();
    options.commit = false;
    auto again = run(*generator, prompt_of(n), options);
    EXPECT_EQ(again.reused_tokens, 0u);
    EXPECT_EQ(again.logits, cold.logits);
    EXPECT_THAT(again.cache_error, ::testing::HasSubstr("not finite"));
  }
}

TEST(EngineGenerator, AFailingCacheIsAMiss) {
  MemoryClient good, bad;
  auto prompt = prompt_of(300);
  auto expected = run(*open(good, coded()), prompt, eight_tokens());
  auto generator = open(bad, coded());
  bad.fail = true;
  auto result = run(*generator, prompt, eight_tokens());
  EXPECT_EQ(result.tokens, expected.tokens);
  EXPECT_EQ(result.logits, expected.logits);
  EXPECT_THAT(result.cache_error, ::testing::HasSubstr("the test's cache is down"));
}

// More prompts than rows, of lengths round block ends, with shared beginnings, one of them bad.
TEST(EngineGenerator, PromptsThatDecodeTogetherGetTheirOwnTokens) {
  CodingOptions coded_prefill = coded();
  coded_prefill.prefill = PrefillMode::coded;
  for (const CodingOptions& coding : {coded(), exact(), coded_prefill}) {
    std::vector<std::vector<Token>> prompts;
    for (size_t n : {1u, 250u, 256u, 300u, 513u, 2u, 520u, 600u}) {
      prompts.push_back(prompt_of(n, n > 500 ? 3 : static_cast<uint32_t>(n)));
    }
    prompts.push_back({1, 100000});
    MemoryClient together, alone;
    auto options = eight_tokens();
    options.commit_answer = false;  // else what a prompt finds depends on which rows have ended
    auto batched = open(together, coding, 2);
    auto single = open(alone, coding);
    for (int round = 0; round < 2; ++round) {  // the second one hits what the first one stored
      auto results = batched->generate_all(prompts, options, 3);
      ASSERT_EQ(results.size(), prompts.size());
      for (size_t i = 0; i + 1 < prompts.size(); ++i) {
        auto own = run(*single, prompts[i], options);
        ASSERT_TRUE(results[i].ok()) << results[i].status().to_string();
        EXPECT_EQ(results[i]->reused_tokens, own.reused_tokens) << i;
        EXPECT_EQ(results[i]->tokens, own.tokens) << i;
        EXPECT_EQ(results[i]->logits, own.logits) << i;
        EXPECT_EQ(results[i]->prompt_objects, own.prompt_objects) << i;
        EXPECT_EQ(results[i]->cache_error, "");
      }
      EXPECT_EQ(results.back().status().code(), StatusCode::invalid_argument);
    }
    EXPECT_EQ(together.objects.size(), alone.objects.size());
  }
}

// The real network; counts steps in the middle of a prefill.
class WatchedNetwork : public Network {
 public:
  explicit WatchedNetwork(std::unique_ptr<Network> real) : real_(std::move(real)) {
    real_->while_prefilling([this] { pause(); });
  }
  const ModelSpec& spec() const override { return real_->spec(); }
  uint32_t vocab() const override { return real_->vocab(); }
  uint32_t context() const override { return real_->context(); }
  Status step(Token token, KvCache& cache, std::span<float> logits) override {
    return real_->step(token, cache, logits);
  }
  void step_rows(std::span<StepRow> rows) override {
    beside_prefill += prefilling_ ? 1 : 0;
    real_->step_rows(rows);
  }
  Status prefill(std::span<const Token> tokens, KvCache& cache, Deadline deadline) override {
    prefilling_ = true;
    Status status = real_->prefill(tokens, cache, deadline);
    prefilling_ = false;
    return status;
  }

  int beside_prefill = 0;

 private:
  std::unique_ptr<Network> real_;
  bool prefilling_ = false;
};

TEST(EngineGenerator, AWarmUpLeavesNothing) {
  MemoryClient client, other;
  auto warm = open(client, coded()), cold = open(other, coded());
  ASSERT_TRUE(warm->warm_up().ok());
  EXPECT_TRUE(client.objects.empty());
  const auto prompt = prompt_of(40, 7);
  const auto a = run(*warm, prompt, eight_tokens()), b = run(*cold, prompt, eight_tokens());
  EXPECT_EQ(a.reused_tokens, 0u);
  EXPECT_EQ(a.tokens, b.tokens);
  EXPECT_EQ(a.logits, b.logits);
}

TEST(EngineGenerator, RowsDecodeWhileAnotherPromptIsComputed) {
  MemoryClient together, alone;
  auto made = make_network(tiny_model(), 2);
  ASSERT_TRUE(made.ok());
  auto watched = std::make_unique<WatchedNetwork>(std::move(*made));
  const WatchedNetwork& network = *watched;
  auto batched = Generator::open(std::move(watched), together, coded(), Deadline::max());
  ASSERT_TRUE(batched.ok());
  const std::vector<std::vector<Token>> prompts = {prompt_of(40, 1), prompt_of(600, 2)};
  auto results = (*batched)->generate_all(prompts, eight_tokens(), 2);
  EXPECT_GT(network.beside_prefill, 0);
  auto single = open(alone, coded());
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto own = run(*single, prompts[i], eight_tokens());
    ASSERT_TRUE(results[i].ok());
    EXPECT_EQ(results[i]->tokens, own.tokens) << i;
    EXPECT_EQ(results[i]->logits, own.logits) << i;
  }
}

TEST(EngineGenerator, CalibrationIsPartOfTheProfile) {
  MemoryClient client;
  CodingOptions options = coded();
  options.calibrate = true;
  options.calibration_file = ::testing::TempDir() + "/engine_generator_calibration";
  std::remove(options.calibration_file.c_str());
  auto first = open(client, options)->opened().profile;
  EXPECT_FALSE(first->parts[0][0].key_mean.empty());
  MemoryClient other;
  auto kept = open(other, options)->opened().profile;  // from the file
  EXPECT_EQ(*kept, *first);
  FILE* f = std::fopen(options.calibration_file.c_str(), "r+b");
  ASSERT_NE(f, nullptr);
  std::fseek(f, 300, SEEK_SET);
  std::fputc('x', f);
  std::fclose(f);
  MemoryClient third;
  EXPECT_EQ(*open(third, options)->opened().profile, *first);  // damaged: made again
  std::remove(options.calibration_file.c_str());
}

TEST(EngineGenerator, RefusesBadInput) {
  MemoryClient client;
  auto generator = open(client, coded());
  auto code = [&](const std::vector<Token>& p, uint32_t most) {
    GenerateOptions options;
    options.max_new_tokens = most;
    return generator->generate(p, options).status().code();
  };
  EXPECT_EQ(code({}, 4), StatusCode::invalid_argument);
  EXPECT_EQ(code({1, -1}, 4), StatusCode::invalid_argument);
  EXPECT_EQ(code({1, 100000}, 4), StatusCode::invalid_argument);
  EXPECT_EQ(code(prompt_of(2047), 2), StatusCode::invalid_argument);  // context 2048
  EXPECT_EQ(code(prompt_of(2047), 1), StatusCode::ok);
  GenerateOptions late;
  late.deadline = std::chrono::steady_clock::now();
  EXPECT_EQ(generator->generate(prompt_of(400), late).status().code(),
            StatusCode::deadline_exceeded);
  EXPECT_FALSE(Generator::open(tiny_model(), client, coded(), 0, Deadline::max()).ok());
  EXPECT_FALSE(Generator::open(tiny_model(), client, coded(5), 1, Deadline::max()).ok());
}

}  // namespace
}  // namespace kv
