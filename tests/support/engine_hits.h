// n stored tokens and m new ones, against the cold run of n + m: equal bit for bit where that is
// promised (engine/MODELS.md, "The same tokens").
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codec/profile_file.h"
#include "engine/generator.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {

/// How rows are kept: raw with exact prefill (in fp16, or in fp32), or coded with coded prefill.
struct Kept {
  const char* name;
  PrefillMode prefill;
  uint8_t k_bits, v_bits;
  bool exact;  ///< fp32
};
inline constexpr Kept kHalf{"half", PrefillMode::exact, 0, 0, false};
inline constexpr Kept kFloat{"float", PrefillMode::exact, 0, 0, true};
inline constexpr Kept kCodes{"codes", PrefillMode::coded, 8, 4, false};
inline constexpr Kept kStreams{"streams", PrefillMode::coded, kTransformWord, kTransformWord,
                               false};

/// A profile file of transforms for a network.
inline void write_transforms(const std::string& path, const ModelSpec& spec) {
  CodingSettings settings;
  settings.k_bits = settings.v_bits = 0;
  auto profile = plain_profile(spec, settings);
  KV_CHECK(profile.ok());
  KV_CHECK(write_profile_file(path, spec, {}, with_transforms(*profile, spec, 1.0f / 64)).ok());
}

inline GenerateOptions hit_options(bool lookup, bool commit) {
  GenerateOptions options;
  options.cache_waits.least = std::chrono::minutes(1);
  options.max_new_tokens = 3;
  options.keep_logits = true;
  options.stop_at_eos = false;
  options.use_lookup = lookup;
  options.commit = commit;
  options.commit_answer = false;
  return options;
}

/// For every n: stores prompt(n)'s first n tokens, then asks for each number of further ones, with
/// what is stored and without. prompt(n): as many as the largest m and n need, one more; of no two
/// n the same beginning.
inline void expect_hits_are_cold_runs(std::unique_ptr<Network> network, const Kept& kept,
                                      uint32_t block_tokens, std::span<const uint32_t> ns,
                                      std::span<const uint32_t> ms,
                                      const std::function<std::vector<Token>(uint32_t)>& prompt) {
  CodingOptions coding;
  coding.calibrate = false;
  coding.block_tokens = block_tokens;
  coding.prefill = kept.prefill;
  coding.exact = kept.exact;
  TempDir dir;
  if (kept.k_bits == kTransformWord) {
    coding.profile_file = dir.path() + "/profile";
    write_transforms(coding.profile_file, network->spec());
  } else {
    coding.k_bits = kept.k_bits;
    coding.v_bits = kept.v_bits;
  }
  CacheOptions roomy = small_options();
  roomy.ram_budget_bytes = 512ull << 20;
  auto cache = open_cache(roomy);
  auto generator = Generator::open(std::move(network), *cache, coding, Deadline::max());
  ASSERT_TRUE(generator.ok()) << generator.status().to_string();
  for (uint32_t n : ns) {
    const std::vector<Token> tokens = prompt(n);
    auto given = [&](uint32_t count, bool lookup, bool commit) {
      const auto some = std::span(tokens).first(count);
      auto result = (*generator)->generate(some, hit_options(lookup, commit));
      KV_CHECK(result.ok());
      EXPECT_EQ(result->cache_error, "");
      return std::move(*result);
    };
    given(n + 1, false, true);
    for (uint32_t m : ms) {
      SCOPED_TRACE(std::to_string(m) + " new tokens after " + std::to_string(n));
      const auto hit = given(n + m + 1, true, false), cold = given(n + m + 1, false, false);
      const bool any = kept.prefill == PrefillMode::exact;
      EXPECT_EQ(hit.reused_tokens, any ? n : n / block_tokens * block_tokens);
      EXPECT_EQ(cold.reused_tokens, 0u);
      EXPECT_EQ(hit.logits, cold.logits);
    }
  }
}

}  // namespace kv
