// cachectl why on a directory alone serves what the service of that directory would, for every kind
// of model, and names the part that is missing.
#include <random>

#include "cachesvc/tiered_cache.h"
#include "tests/support/cachectl_store.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

using namespace kv::testing;

struct Kind {
  const char* name;
  ModelSpec model;
};
std::ostream& operator<<(std::ostream& out, const Kind& kind) { return out << kind.name; }

class CachectlWhyStore : public ::testing::TestWithParam<Kind> {
 protected:
  using Tokens = std::vector<Token>;

  // Stores the sequences; the service's answers to the questions.
  std::vector<uint32_t> served(const std::vector<Tokens>& stored,
                               const std::vector<Tokens>& asked) {
    CacheOptions options = small_options(dir_.store());
    auto cache = TieredCache::create(options, "test");
    EXPECT_TRUE(cache.ok()) << cache.status().to_string();
    Bench bench = Bench::open(**cache, GetParam().model, make_profile(GetParam().model, 0));
    for (const Tokens& tokens : stored) {
      EXPECT_TRUE(bench.store(tokens, Durability::durable).ok());
    }
    std::vector<uint32_t> out;
    for (const Tokens& tokens : asked) {
      auto reply = (*cache)->lookup({bench.opened.model, {tokens, {}}}, soon());
      EXPECT_TRUE(reply.ok()) << reply.status().to_string();
      out.push_back(reply.ok() ? reply->tokens : 0);
    }
    return out;
  }
  json offline(const Tokens& tokens) {
    const std::string file = dir_.path() + "/tokens.json";
    spew(file, json(tokens).dump());
    const Ran ran = run_cachectl("why --json --dir " + dir_.store() + " " + file);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.parsed().at(0);
  }

  kv::TempDir dir_;
  std::mt19937 rng_{1};
};

TEST_P(CachectlWhyStore, ServesWhatTheServiceWould) {
  const Tokens one = random_tokens(rng_, 75);
  Tokens other = slice(one, 0, 40);
  for (const Token t : random_tokens(rng_, 30)) other.push_back(t);
  std::vector<Tokens> asked;
  for (const size_t n : {1, 2, 16, 17, 33, 40, 41, 48, 64, 75}) asked.push_back(slice(one, 0, n));
  for (const size_t n : {40, 41, 63, 70}) asked.push_back(slice(other, 0, n));
  for (const size_t n : {0, 20, 38, 60, 75}) {
    Tokens longer = slice(one, 0, n);
    for (const Token t : random_tokens(rng_, 10)) longer.push_back(t);
    asked.push_back(std::move(longer));
  }
  const auto service = served({one, other}, asked);
  uint32_t most = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    const json why = offline(asked[i]);
    const uint32_t n = why["served"];
    EXPECT_EQ(n, service[i]) << asked[i].size() << " tokens, number " << i;
    EXPECT_EQ(why["missing"] == "nothing", n + 1 >= asked[i].size());
    most = std::max(most, n);
  }
  EXPECT_EQ(most, 75u);
}

TEST_P(CachectlWhyStore, NamesThePartThatIsMissing) {
  const Tokens tokens = random_tokens(rng_, 75);
  Tokens longer = tokens;
  longer.push_back(1);
  longer.push_back(2);
  ASSERT_EQ(served({tokens}, {longer}), std::vector<uint32_t>{75});
  size_t removed = 0;
  for (const auto& file : fs::recursive_directory_iterator(dir_.store())) {
    const auto name = parse_file_name(file.path().filename().string());
    if (!name || (name->kind != FileKind::supplement && name->kind != FileKind::snapshot)) continue;
    fs::remove(file.path());
    ++removed;
  }
  if (removed == 0) return;  // all of this model lies in its blocks
  const json why = offline(longer);
  EXPECT_LT(why["served"], 75);
  EXPECT_EQ(why["missing"], "part");
  EXPECT_NE(why["reason"], "");
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, CachectlWhyStore,
    ::testing::Values(Kind{"plain", plain_model()},
                      Kind{"window", model_of({{{full_part()}}, {{window_part(24, 0)}}})},
                      Kind{"chunk", model_of({{{full_part()}}, {{chunk_part(32)}}})},
                      Kind{"pooled", model_of({{{pooled_part(4, true)}}})},
                      Kind{"state",
                           model_of({{{full_part()}}, {{state_part(SnapshotPlace::checkpoint)}}})}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace kv
