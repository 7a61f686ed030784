// The tiered cache on a 3,000-token entry of SmolLM2's geometry: store, spill, RAM fetch, promote.
// Bytes per second count the entry's fp16 bytes.
#include <benchmark/benchmark.h>

#include <cstring>

#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

constexpr uint32_t kTokens = 3000;

ModelSpec smollm2() { return model_of(std::vector<LayerSpec>(30, LayerSpec{{full_part(3, 64)}})); }
std::vector<Token> prompt(uint32_t seed) {
  std::mt19937 rng(seed);
  return random_tokens(rng, kTokens);
}
CacheOptions bench_options(const std::string& dir) {
  CacheOptions o;
  o.ram_budget_bytes = 512ull << 20;
  o.ssd_dir = dir;
  o.ssd_limit_bytes = 2ull << 30;
  o.ssd_min_free_bytes = 0;
  return o;
}
// The puts of one prompt, made before the clock runs; tokens differ from round to round.
std::vector<PutRequest> make_puts(const Bench& b, const std::vector<Token>& tokens,
                                  const std::vector<Need>& needs) {
  std::vector<PutRequest> puts;
  for (const Need& need : needs) {
    puts.push_back(make_put(b.model, b.opened.profile->block_tokens, tokens, need, 0));
  }
  return puts;
}
void store(Bench& b, uint32_t seed, Durability level, benchmark::State& state) {
  state.PauseTiming();
  auto tokens = prompt(seed);
  auto reserved = b.reserve(tokens);
  if (!reserved.ok()) return state.SkipWithError(reserved.status().to_string().c_str());
  auto puts = make_puts(b, tokens, reserved->needs);
  state.ResumeTiming();
  for (auto& put : puts) {
    put.reservation = reserved->reservation;
    Status s = b.client.put(std::move(put), soon());
    if (!s.ok()) return state.SkipWithError(s.to_string().c_str());
  }
  auto reply = b.client.commit(reserved->reservation, level, soon());
  if (!reply.ok()) return state.SkipWithError(reply.status().to_string().c_str());
}
void set_bytes(benchmark::State& state) {
  uint64_t bytes = fp16_bytes_per_token(smollm2()) * kTokens;
  state.SetBytesProcessed(static_cast<int64_t>(bytes * state.iterations()));
}

// Arg: the level that the commit waits for (1 accepted, 2 spilled, 3 durable).
void BM_Store(benchmark::State& state) {
  TempDir dir;
  auto level = static_cast<Durability>(state.range(0));
  auto cache = open_cache(bench_options(level == Durability::accepted ? "" : dir.store()));
  auto b = Bench::open(*cache, smollm2());
  uint32_t seed = 1;
  for (auto _ : state) store(b, seed++, level, state);
  set_bytes(state);
}
BENCHMARK(BM_Store)
    ->Arg(1)
    ->Arg(2)
    ->Arg(3)
    ->Iterations(5)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

void BM_FetchRam(benchmark::State& state) {
  auto cache = open_cache(bench_options(""));
  auto b = Bench::open(*cache, smollm2());
  auto tokens = prompt(1);
  if (!b.store(tokens).ok()) return state.SkipWithError("store");
  for (auto _ : state) {
    auto hit = b.fetch(tokens);
    if (!hit.ok() || hit->tokens != kTokens - 1) return state.SkipWithError("miss");
    benchmark::DoNotOptimize(hit->lease.prefix().objects.data());
  }
  set_bytes(state);
}
BENCHMARK(BM_FetchRam)->Unit(benchmark::kMicrosecond)->UseRealTime();

void BM_FetchDecoded(benchmark::State& state) {
  auto cache = open_cache(bench_options(""));
  auto b = Bench::open(*cache, smollm2());
  auto tokens = prompt(1);
  if (!b.store(tokens).ok()) return state.SkipWithError("store");
  for (auto _ : state) {
    auto hit = b.fetch(tokens, FetchForm::f16);
    if (!hit.ok() || hit->tokens != kTokens - 1) return state.SkipWithError("miss");
  }
  set_bytes(state);
}
BENCHMARK(BM_FetchDecoded)->Iterations(10)->Unit(benchmark::kMillisecond)->UseRealTime();

// A new cache on the same directory each time; files come from the page cache.
void BM_Promote(benchmark::State& state) {
  TempDir dir;
  auto tokens = prompt(1);
  {
    auto cache = open_cache(bench_options(dir.store()));
    auto b = Bench::open(*cache, smollm2());
    if (!b.store(tokens, Durability::spilled).ok()) return state.SkipWithError("store");
  }
  for (auto _ : state) {
    state.PauseTiming();
    auto cache = open_cache(bench_options(dir.store()));
    auto b = Bench::open(*cache, smollm2());
    state.ResumeTiming();
    auto hit = b.fetch(tokens);
    if (!hit.ok() || hit->tier != Tier::ssd) return state.SkipWithError("no promotion");
    state.PauseTiming();
    hit = Status(StatusCode::not_found, "");
    cache.reset();
    state.ResumeTiming();
  }
  set_bytes(state);
}
BENCHMARK(BM_Promote)->Iterations(5)->Unit(benchmark::kMillisecond)->UseRealTime();

// The yardstick of the rows above: the entry's fp16 bytes copied once into recycled memory.
void BM_CopyEntry(benchmark::State& state) {
  std::vector<uint8_t> from(fp16_bytes_per_token(smollm2()) * kTokens, 1), to(from.size(), 2);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), from.size());
    benchmark::DoNotOptimize(to.data());
    benchmark::ClobberMemory();
  }
  set_bytes(state);
}
BENCHMARK(BM_CopyEntry)->Unit(benchmark::kMillisecond)->UseRealTime();

// One token more of a conversation that has left a tail at each of so many lengths of its block.
void BM_StoreBesideTails(benchmark::State& state) {
  auto cache = open_cache(bench_options(""));
  ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(512, 4)}},
                              LayerSpec{{pooled_part(4, true)}},
                              LayerSpec{{state_part(SnapshotPlace::checkpoint)}}});
  auto b = Bench::open(*cache, model);
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 255);
  auto n = static_cast<uint32_t>(state.range(0));
  auto store_next = [&](uint32_t length) {
    return b.store({tokens.begin(), tokens.begin() + length}).ok();
  };
  for (uint32_t length = 1; length <= n; ++length) {
    if (!store_next(length)) return state.SkipWithError("store");
  }
  for (auto _ : state) {
    if (!store_next(++n)) return state.SkipWithError("store");
  }
  state.counters["objects"] = static_cast<double>(b.stat("ram_objects"));
}
BENCHMARK(BM_StoreBesideTails)
    ->Arg(1)
    ->Arg(100)
    ->Arg(230)
    ->Iterations(20)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime();

// A prompt shorter than a block, of a model with a state, beside so many of other tokens: their
// snapshots all hang on the root.
void BM_StoreBesideStates(benchmark::State& state) {
  auto cache = open_cache(bench_options(""));
  auto b = Bench::open(*cache, model_of({LayerSpec{{state_part(SnapshotPlace::checkpoint)}}}));
  std::mt19937 rng(1);
  auto store_next = [&] { return b.store(random_tokens(rng, 100)).ok(); };
  for (int64_t i = 0; i < state.range(0); ++i) {
    if (!store_next()) return state.SkipWithError("store");
  }
  const uint64_t before = b.stat("ram_objects");
  for (auto _ : state) {
    if (!store_next()) return state.SkipWithError("store");
  }
  state.counters["objects"] = static_cast<double>(before);
}
BENCHMARK(BM_StoreBesideStates)
    ->Arg(500)
    ->Arg(4000)
    ->Arg(30000)
    ->Iterations(200)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
