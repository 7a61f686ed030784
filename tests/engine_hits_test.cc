// n stored tokens and m new ones: what the cold run gives, bit for bit, where that is promised:
// with raw rows and exact prefill for every n, with coded prefill from the block end before. And
// the same with every kernel set of this machine, on one store.
#include "tests/support/engine_hits.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "engine/generator.h"
#include "tests/support/engine_stored_rows.h"
#include "tests/support/engine_tiny_network.h"

namespace kv {
namespace {

class EngineHits : public ::testing::TestWithParam<std::tuple<const char*, Kept>> {};
INSTANTIATE_TEST_SUITE_P(
    Kinds, EngineHits,
    ::testing::Combine(::testing::Values("llama", "gemma3"),
                       ::testing::Values(kHalf, kFloat, kCodes, kStreams,
                                         Kept{"coded_values", PrefillMode::coded, 0, 4, false},
                                         Kept{"coded_keys", PrefillMode::coded, 4, 0, false})),
    [](const auto& made) {
      return std::string(std::get<0>(made.param)) + "_" + std::get<1>(made.param).name;
    });

// Chunks of attention begin within blocks.
TEST_P(EngineHits, MNewTokensAfterNStoredOnesAreTheColdRun) {
  const auto& [architecture, kept] = GetParam();
  constexpr uint32_t kN[] = {1, 31, 96, 100, 256, 300}, kM[] = {0, 1, 2, 12, 13, 34, 97, 260};
  expect_hits_are_cold_runs(tiny_network(architecture), kept, 96, kN, kM,
                            [](uint32_t n) { return byte_tokens(n + 261, n); });
}

// A run of its own process, as the set of kernels is chosen once: to FILE what came of a prompt, on
// the store in DIR.
constexpr const char *kDir = "ENGINE_SETS_DIR", *kFile = "ENGINE_SETS_FILE";

TEST(EngineSets, RunsOnAStore) {
  if (!std::getenv(kFile)) GTEST_SKIP() << "run by the test below, in processes of its own";
  CodingOptions coding;
  coding.block_tokens = 96;
  coding.prefill = PrefillMode::coded;
  coding.k_bits = 8;
  std::ofstream out(std::getenv(kFile), std::ios::binary);
  for (const char* architecture : {"llama", "gemma3"}) {
    auto cache = open_cache(small_options(std::getenv(kDir) + std::string(architecture)));
    auto generator = *Generator::open(tiny_network(architecture), *cache, coding, Deadline::max());
    const auto prompt = byte_tokens(420, 3);
    GenerateOptions options = hit_options(true, true);
    options.wait_for = Durability::spilled;
    options.max_new_tokens = 0;
    ASSERT_TRUE(generator->generate(std::span(prompt).first(200), options).ok());
    options.max_new_tokens = 8;
    auto run = generator->generate(prompt, options);
    ASSERT_TRUE(run.ok()) << run.status().to_string();
    EXPECT_GE(run->reused_tokens, 192u);
    out.write(reinterpret_cast<const char*>(run->logits.data()),
              static_cast<std::streamsize>(run->logits.size() * sizeof(float)));
    for (const auto& [key, bytes] : stored_rows(*cache, generator->opened(), prompt).bytes) {
      out.write(reinterpret_cast<const char*>(bytes.data()),
                static_cast<std::streamsize>(bytes.size()));
    }
  }
}

std::string run_with(const char* kernels, const std::string& dir) {
  const std::string file = dir + "out";
  ::setenv(kDir, dir.c_str(), 1);
  ::setenv(kFile, file.c_str(), 1);
  ::setenv("KV_KERNELS", kernels, 1);
  const int status =
      std::system("exec /proc/$PPID/exe --gtest_filter=EngineSets.RunsOnAStore > /dev/null");
  ::unsetenv("KV_KERNELS");
  EXPECT_EQ(status, 0) << kernels;
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(EngineSets, LogitsAndStoredBytesAreEqualAlsoOnAnothersStore) {
  TempDir first;
  const std::string expected = run_with("scalar", first.store());
  EXPECT_GT(expected.size(), 100'000u);
  for (const char* set : {"avx2", "avx512"}) {
    const bool here = set == std::string("avx2") ? avx2_engine_kernels() != nullptr
                                                 : avx512_engine_kernels() != nullptr;
    if (!here) continue;
    TempDir own;
    EXPECT_TRUE(run_with(set, own.store()) == expected) << set << ", cold";
    EXPECT_TRUE(run_with(set, first.store()) == expected) << set << ", on the scalar one's";
  }
}

}  // namespace
}  // namespace kv
