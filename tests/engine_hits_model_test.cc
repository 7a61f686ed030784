// n stored tokens and m new ones on the real models: the cold run's logits, bit for bit. Labelled
// `model`.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "engine/model_network.h"
#include "tests/support/engine_hits.h"

namespace kv {
namespace {

struct HitModel {
  const char *name, *variable;
};

class EngineHitsOfModels : public ::testing::TestWithParam<std::tuple<HitModel, Kept>> {};
INSTANTIATE_TEST_SUITE_P(
    Models, EngineHitsOfModels,
    ::testing::Combine(::testing::Values(HitModel{"smollm2", "KV_SMOLLM2_GGUF"},
                                         HitModel{"gemma3", "KV_GEMMA3_GGUF"}),
                       ::testing::Values(kHalf, kCodes)),
    [](const auto& made) {
      return std::string(std::get<0>(made.param).name) + "_" + std::get<1>(made.param).name;
    });

TEST_P(EngineHitsOfModels, MNewTokensAfterNStoredOnesAreTheColdRun) {
  const auto& [of, kept] = GetParam();
  const char* path = std::getenv(of.variable);
  if (path == nullptr) GTEST_SKIP() << of.variable << " is not set: no model to run";
  auto model = Model::load(path);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  std::ifstream in("/usr/share/common-licenses/GPL-3");
  std::stringstream text;
  text << in.rdbuf();
  auto ids = (*model)->tokenizer().encode(text.str());
  ASSERT_TRUE(ids.ok());
  if (ids->size() < 2000) GTEST_SKIP() << "no /usr/share/common-licenses/GPL-3";
  constexpr uint32_t kN[] = {5, 256, 700}, kM[] = {1, 33, 300};
  expect_hits_are_cold_runs(*make_network(*model, 2), kept, 256, kN, kM, [&](uint32_t n) {
    return std::vector<Token>(ids->begin() + n, ids->begin() + n + n + 301);
  });
}

}  // namespace
}  // namespace kv
