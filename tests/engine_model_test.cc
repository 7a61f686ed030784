// The real models: logits against an independent engine in fp32, both computation paths, greedy
// continuations against llama.cpp's. Labelled `model`: more than 64 tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>

#include "codec/plan.h"
#include "engine/calibration.h"
#include "engine/decoder.h"
#include "engine/model_network.h"
#include "engine/prefill.h"

namespace kv {
namespace {

struct Golden {
  Token token, best, second;
  float best_logit, second_logit;
};

struct RealModel {
  const char* variable;  // names the model file
  const char* golden;
  size_t positions;      // of the golden file
  uint32_t step;         // every so many of them are compared
  size_t greedy_prompt;  // tokens; Gemma's window is 512
};

std::vector<Golden> read_golden(const char* name) {
  std::vector<Golden> rows;
  std::ifstream in(std::string(KV_GOLDEN_DIR) + "/engine/" + name);
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    Golden g{};
    std::istringstream(line) >> g.token >> g.best >> g.second >> g.best_logit >> g.second_logit;
    rows.push_back(g);
  }
  return rows;
}

std::shared_ptr<const Model> load_once(const char* variable) {
  static std::map<std::string, std::shared_ptr<const Model>> models;
  const char* path = std::getenv(variable);
  if (path == nullptr) return nullptr;
  auto& model = models[variable];
  if (!model) {
    auto loaded = Model::load(path);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    if (loaded.ok()) model = *loaded;
  }
  return model;
}

class EngineModel : public ::testing::TestWithParam<RealModel> {
 protected:
  void SetUp() override {
    model_ = load_once(GetParam().variable);
    if (!model_) GTEST_SKIP() << GetParam().variable << " is not set: no model to run";
    golden_ = read_golden(GetParam().golden);
    ASSERT_EQ(golden_.size(), GetParam().positions);
    for (const Golden& g : golden_) tokens_.push_back(g.token);
  }
  std::shared_ptr<const Model> model_;
  std::vector<Golden> golden_;
  std::vector<Token> tokens_;
};

// Counts positions whose best id is the reference's; where the reference is sure it must be.
class Agreement {
 public:
  void add(size_t position, const Golden& g, const std::vector<float>& logits) {
    auto best = static_cast<Token>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    ++positions_;
    if (best == g.best) ++same_;
    float gap = g.best_logit - g.second_logit;
    EXPECT_TRUE(best == g.best || gap < 0.2f) << "position " << position << " gap " << gap;
    worst_ = std::max(worst_, std::fabs(logits[g.best] - g.best_logit));
  }
  void finish() const {
    EXPECT_GE(same_ * 100, positions_ * 99) << same_ << " of " << positions_;
    EXPECT_LT(worst_, 1e-3f);
    std::printf("same top-1: %zu of %zu; largest difference of a best logit: %g\n", same_,
                positions_, static_cast<double>(worst_));
  }

 private:
  size_t same_ = 0, positions_ = 0;
  float worst_ = 0;
};

TEST_P(EngineModel, PrefillAgreesWithTheReference) {
  Threads threads(2);
  Prefill prefill(*model_, threads);
  struct Drop : PrefillRows {
    Result<const AttentionRows*> take(uint32_t, uint32_t, float*, float*) override {
      return nullptr;
    }
  } drop;
  ASSERT_TRUE(prefill.run(tokens_, 0, drop, Deadline::max(), true).ok());
  Decoder decoder(*model_, threads);
  Agreement agreement;
  std::vector<float> logits(model_->shape().vocab);
  const std::span<float> out(logits);
  for (uint32_t i = 0; i < tokens_.size(); i += GetParam().step) {
    decoder.logits_of(prefill.hidden(i), {&out, 1});
    agreement.add(i, golden_[i], logits);
  }
  agreement.finish();
}

// An empty sequence of raw rows in fp32.
KvCache exact_cache(const Model& model) {
  CodingSettings exact;
  exact.k_bits = exact.v_bits = 0;
  exact.raw_dtype = DType::f32;
  auto profile = plain_profile(model.spec(), exact);
  KV_CHECK(profile.ok());
  auto codec = Codec::create(model.spec(), std::make_shared<const Profile>(*profile));
  KV_CHECK(codec.ok());
  return KvCache(*codec, Realm{"test", model.spec().fingerprint, profile->id()});
}

TEST_P(EngineModel, TokenByTokenAgreesWithTheReferenceInExactMode) {
  KvCache cache = exact_cache(*model_);
  Threads threads(2);
  Decoder decoder(*model_, threads);
  Agreement agreement;
  std::vector<float> logits(model_->shape().vocab);
  for (size_t i = 0; i < golden_.size(); ++i) {
    bool asked = i % GetParam().step == 0;
    Status s = decoder.step(tokens_[i], cache, asked ? logits : std::span<float>());
    ASSERT_TRUE(s.ok()) << s.to_string();
    if (asked) agreement.add(i, golden_[i], logits);
  }
  agreement.finish();
}

std::vector<Token> read_line(std::istream& in) {
  std::string line;
  std::getline(in, line);
  std::istringstream words(line);
  return {std::istream_iterator<Token>(words), {}};
}

// Their prompt (the start of GPL-3) and greedy continuation; both empty if llama.cpp failed.
std::pair<std::vector<Token>, std::vector<Token>> llama_greedy(const char* python,
                                                               const RealModel& m) {
  std::string out = ::testing::TempDir() + "/engine_llama_greedy_" + m.variable + ".txt";
  std::string command = std::string("\"") + python + "\" \"" + KV_SCRIPTS_DIR +
                        "/llama_greedy.py\" \"" + std::getenv(m.variable) + "\" \"" + out + "\" " +
                        std::to_string(m.greedy_prompt) + " 48 2>/dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ifstream in(out);
  auto prompt = read_line(in), theirs = read_line(in);
  std::remove(out.c_str());
  return {prompt, theirs};
}

// llama.cpp rounds activations to 8 bits, so it may choose otherwise where two logits are close;
// after its token the texts are the same again. Everywhere else the ids must be equal.
TEST_P(EngineModel, GreedyContinuationIsLlamaCpps) {
  const char* python = std::getenv("KV_PYTHON");
  if (python == nullptr) GTEST_SKIP() << "KV_PYTHON is not set: no interpreter with xllamacpp";
  auto [prompt, theirs] = llama_greedy(python, GetParam());
  ASSERT_EQ(prompt.size(), GetParam().greedy_prompt);
  ASSERT_GE(theirs.size(), 40u);
  auto network = make_network(model_, 2);
  ASSERT_TRUE(network.ok());
  KvCache cache = exact_cache(*model_);
  auto before_last = std::span<const Token>(prompt).first(prompt.size() - 1);
  ASSERT_TRUE((*network)->prefill(before_last, cache, Deadline::max()).ok());
  std::vector<float> logits(model_->shape().vocab);
  size_t different = 0;
  float widest = 0;  // where the ids differ
  for (size_t i = 0; i < theirs.size(); ++i) {
    ASSERT_TRUE((*network)->step(i == 0 ? prompt.back() : theirs[i - 1], cache, logits).ok());
    if (std::max_element(logits.begin(), logits.end()) - logits.begin() == theirs[i]) continue;
    ++different;
    const float best = *std::max_element(logits.begin(), logits.end());
    widest = std::max(widest, best - logits[theirs[i]]);
  }
  std::printf("%zu of %zu ids differ, theirs at most %g below our best logit\n", different,
              theirs.size(), static_cast<double>(widest));
  EXPECT_LT(widest, 0.2f);
  EXPECT_LE(different, theirs.size() / 6);
}

TEST_P(EngineModel, CalibrationIsTheSameEveryTime) {
  auto base = plain_profile(model_->spec(), {});
  ASSERT_TRUE(base.ok());
  EXPECT_GE(model_->tokenizer().encode(kCalibrationText)->size(), kCalibrationTokens);
  auto one = make_network(model_, 1), two = make_network(model_, 2);
  ASSERT_TRUE(one.ok() && two.ok());
  auto a = calibrate(**one, *base, Deadline::max());
  auto b = calibrate(**two, *base, Deadline::max());
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, *base);
}

INSTANTIATE_TEST_SUITE_P(
    Models, EngineModel,
    ::testing::Values(RealModel{"KV_SMOLLM2_GGUF", "smollm2_logits.txt", 512, 1, 300},
                      RealModel{"KV_GEMMA3_GGUF", "gemma3_logits.txt", 1152, 2, 600}),
    [](const auto& given) { return std::string(given.param.variable); });

}  // namespace
}  // namespace kv
