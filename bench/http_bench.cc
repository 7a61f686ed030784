// Cost of monitoring: /metrics and the status page as texts, by the number of namespaces, and what
// an owner pays to add a value to a histogram, and to a model's sums.
#include <benchmark/benchmark.h>

#include <random>

#include "cachesvc/daemon/http_metrics.h"
#include "cachesvc/daemon/http_page.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

// The stats of a real cache, and so many namespaces with a quota and a model each.
Metrics metrics_of(int64_t namespaces) {
  Metrics out;
  TempDir dir;
  auto cache = open_cache(small_options(dir.store()));
  out.stats = *cache->stats(soon());
  std::mt19937_64 rng(1);
  for (int i = 0; i < 100'000; ++i) {
    for (Histogram& h : out.measures.fetch) h.add(rng() % 10'000'000);
    out.measures.reuse_gap.add(rng() % 100'000);
  }
  for (int64_t i = 0; i < namespaces; ++i) {
    const std::string ns = "tenant-" + std::to_string(i);
    out.namespaces[ns] = {1000, 2, 123'456, 7, 8, 1u << 30, true, 3, 1u << 30, 1u << 31, 5, 6};
    out.measures.models.of(ns, "meta-llama/Llama-3.1-8B") = {123'456, 789, 1, 1u << 31, 5, 6, 7};
  }
  return out;
}

void Metrics_Text(benchmark::State& state) {
  const Metrics metrics = metrics_of(state.range(0));
  size_t bytes = 0;
  for (auto _ : state) bytes = prometheus_text(metrics).size();
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(Metrics_Text)->Arg(1)->Arg(100)->Arg(256)->Unit(benchmark::kMillisecond);

void Status_Page(benchmark::State& state) {
  const Metrics metrics = metrics_of(state.range(0));
  size_t bytes = 0;
  for (auto _ : state) bytes = status_page(metrics, {"", true, "1"}).size();
  state.counters["bytes"] = static_cast<double>(bytes);
}
BENCHMARK(Status_Page)->Arg(1)->Arg(100)->Unit(benchmark::kMillisecond);

// A fetch adds one of these, and one to its model's sums; each object that it uses one more.
void Histogram_Add(benchmark::State& state) {
  Histogram h(Measures::kMicroseconds);
  uint64_t value = 1;
  for (auto _ : state) {
    h.add(value);
    value = value * 6364136223846793005u >> 40;
    benchmark::DoNotOptimize(value);
  }
}
BENCHMARK(Histogram_Add);

void Model_Sums(benchmark::State& state) {
  ModelUses uses;
  for (int i = 0; i < 100; ++i) uses.of("tenant-" + std::to_string(i), "meta-llama/Llama-3.1-8B");
  const std::string ns = "tenant-57", model = "meta-llama/Llama-3.1-8B";
  for (auto _ : state) ++uses.of(ns, model).fetches;
}
BENCHMARK(Model_Sums);

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
