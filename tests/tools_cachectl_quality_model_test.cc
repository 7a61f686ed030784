// `cachectl quality` on a real model: small, so that what README reports can't fall apart unseen;
// and llama.cpp itself beside it.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "tests/support/cachectl_process.h"
#include "tools/cachectl_llama.h"

namespace kv::cachectl {
namespace {

TEST(QualityModel, OurCodesBeatLlamaCppsAtFewerBytes) {
  const char* model = std::getenv("KV_SMOLLM2_GGUF");
  if (model == nullptr) GTEST_SKIP() << "KV_SMOLLM2_GGUF is not set: no model to run";
  const auto dir = std::filesystem::path(::testing::TempDir()) / "quality-model";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "text.txt") << std::ifstream("/usr/share/common-licenses/GPL-3").rdbuf();
  Ran ran = run_cachectl("quality '" + std::string(model) + "' --text text.txt --tokens 1024 " +
                             "--hit-only --settings tq8,tq84,tq4,tq4-plain,q4_0 --json out.json",
                         dir);
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::ifstream in(dir / "out.json");
  std::map<std::string, nlohmann::json> found;
  const auto parsed = nlohmann::json::parse(in);
  for (const auto& s : parsed["settings"]) found[s["name"]] = s;
  auto kld = [&](const char* name) { return found[name]["hit"]["kld"].get<double>(); };
  EXPECT_LT(found["tq4"]["ratio"], found["q4_0"]["ratio"]);
  EXPECT_LT(kld("tq4"), 0.5 * kld("q4_0"));
  EXPECT_LT(kld("tq4"), kld("tq4-plain"));
  EXPECT_LT(kld("tq84"), 0.7 * kld("tq4"));
  EXPECT_LT(kld("tq8"), 0.1 * kld("tq84"));
  EXPECT_GE(found["tq84"]["hit"]["agreement"], 0.97);
  std::filesystem::remove_all(dir);
}

// Its predictions are of this text, and worse the smaller its cache is.
TEST(QualityModel, LlamaCppPredictsTheTextOnItsOwnCache) {
  const char *path = std::getenv("KV_SMOLLM2_GGUF"), *python = std::getenv("KV_PYTHON");
  if (path == nullptr || python == nullptr) {
    GTEST_SKIP() << "KV_SMOLLM2_GGUF or KV_PYTHON is not set: no llama.cpp to run";
  }
  if (std::system((std::string(python) + " -c 'import xllamacpp'").c_str()) != 0) {
    GTEST_SKIP() << python << " has no xllamacpp";
  }
  auto model = Model::load(path);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  std::stringstream text;
  text << std::ifstream("/usr/share/common-licenses/GPL-3").rdbuf();
  auto tokens = *(*model)->tokenizer().encode(text.str());
  tokens.resize(kTeacherBlock + 32);
  const LlamaProgram program{std::string(python) + " " KV_TOOLS "/quality_llama.py", path, 1,
                             (*model)->shape().vocab};
  const auto found = llama_divergences(program, tokens);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  const Divergence &q8_0 = (*found)[0], &q4_0 = (*found)[1];
  EXPECT_EQ(q8_0.kld.size(), 32u);
  EXPECT_EQ(q8_0.predicted, 31u);
  EXPECT_LT(q8_0.exact_nll, 3.0 * 31) << "it doesn't predict this text";
  EXPECT_EQ(q8_0.exact_nll, q4_0.exact_nll);
  auto sum = [](const Divergence& d) { return std::accumulate(d.kld.begin(), d.kld.end(), 0.0); };
  EXPECT_GT(sum(q8_0), 0);
  EXPECT_GT(sum(q4_0), 3 * sum(q8_0));
  EXPECT_GE(q8_0.agreements, 28u);
}

}  // namespace
}  // namespace kv::cachectl
