// `cachectl quality` on a real model: small, so that what README reports can't fall apart unseen.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "tests/cachectl_process.h"

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

}  // namespace
}  // namespace kv::cachectl
