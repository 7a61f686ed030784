// Batched decode on the real model (KV_SMOLLM2_GGUF), 2 threads: tokens/s of rows that step
// together, and of the same rows one after the other, on K4/V4 rows; over one prefix, and each row
// over its own.
#include <benchmark/benchmark.h>

#include <cstdlib>
#include <random>

#include "codec/plan.h"
#include "engine/batch.h"
#include "engine/model_network.h"

namespace kv {
namespace {

constexpr uint32_t kThreads = 2;
constexpr int kSteps = 24;

struct Fixture {
  std::unique_ptr<Network> network;
  std::shared_ptr<const Codec> codec;

  KvCache cache() const {
    return KvCache(codec, {"bench", codec->model().fingerprint, codec->profile().id()});
  }
};

// Null without the model.
Fixture* fixture() {
  static std::unique_ptr<Fixture> made = [] {
    const char* path = std::getenv("KV_SMOLLM2_GGUF");
    if (path == nullptr) return std::unique_ptr<Fixture>();
    auto f = std::make_unique<Fixture>();
    f->network = *make_network(*Model::load(path), kThreads);
    auto profile = std::make_shared<const Profile>(*plain_profile(f->network->spec(), {}));
    f->codec = *Codec::create(f->network->spec(), profile);
    return f;
  }();
  return made.get();
}

// A prompt as a cache serves it: sequences that restore it share its bytes. Its rows are noise:
// speed doesn't depend on them.
struct Stored {
  std::vector<Token> tokens;
  Prefix prefix;
};

Stored store(const Fixture& f, uint32_t seed, uint32_t n) {
  KvCache cache = f.cache();
  Stored stored{std::vector<Token>(n, static_cast<Token>(seed)), {}};
  const auto& layers = f.network->spec().layers;
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> noise(-1, 1);
  for (uint32_t l = 0; l < layers.size(); ++l) {
    std::vector<float> k(size_t{n} * layers[l].parts[0].heads * layers[l].parts[0].k_dim);
    std::vector<float> v(k.size());
    for (size_t i = 0; i < k.size(); ++i) k[i] = noise(random), v[i] = noise(random);
    KV_CHECK(cache.append(l, 0, n, k.data(), v.data()).ok());
    KV_CHECK(cache.seal(l).ok());
  }
  cache.advance(stored.tokens);
  for (const ObjectPtr& block : cache.blocks()) {
    stored.prefix.objects.push_back({block, block->end_token()});
  }
  if (ObjectPtr tail = *cache.tail(n)) stored.prefix.objects.push_back({tail, tail->end_token()});
  stored.prefix.tokens = n;
  stored.tokens.push_back(0);
  return stored;
}

// `rows` rows over one stored prefix of `tokens`, or over one each, ragged round that length.
std::vector<std::unique_ptr<Batch::Row>> make_rows(const Fixture& f, uint32_t rows, uint32_t tokens,
                                                   bool shared) {
  static std::vector<Stored> kept;
  static std::pair<uint32_t, bool> kept_for;
  if (kept_for != std::pair{tokens, shared}) kept.clear();
  kept_for = {tokens, shared};
  while (kept.size() < (shared ? 1 : rows)) {
    const auto i = static_cast<uint32_t>(kept.size());
    kept.push_back(store(f, i + 1, shared ? tokens : tokens - 40 + 11 * i));
  }
  std::vector<std::unique_ptr<Batch::Row>> out;
  for (uint32_t i = 0; i < rows; ++i) {
    const Stored& stored = kept[shared ? 0 : i];
    KvCache cache = f.cache();
    KV_CHECK(cache.restore(Lease(Prefix(stored.prefix), nullptr), stored.tokens).ok());
    out.push_back(std::make_unique<Batch::Row>(std::move(cache), 100 + i));
  }
  return out;
}

// Arguments: rows, tokens of the prefix, whether it is one for all, whether rows step together.
void BM_Decode(benchmark::State& state) {
  Fixture* f = fixture();
  if (f == nullptr) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  const auto rows = static_cast<uint32_t>(state.range(0));
  Batch batch(*f->network);
  for (auto& row : make_rows(*f, rows, static_cast<uint32_t>(state.range(1)), state.range(2) != 0))
    KV_CHECK(batch.join(std::move(row)).ok());
  const bool together = state.range(3) != 0;
  std::vector<float> logits(f->network->vocab());
  for (auto _ : state) {
    if (together) {
      KV_CHECK(batch.step() == rows);
      continue;
    }
    for (auto& row : batch.rows()) {
      KV_CHECK(f->network->step(row->token, row->cache, logits).ok());
    }
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(state.iterations() * rows),
                                                  benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Decode)
    ->ArgNames({"rows", "tokens", "shared", "together"})
    ->Args({8, 4096, 1, 0})
    ->Args({8, 4096, 1, 1})
    ->Args({4, 512, 0, 0})
    ->Args({4, 512, 0, 1})
    ->Args({8, 512, 0, 0})
    ->Args({8, 512, 0, 1})
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(kSteps);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
