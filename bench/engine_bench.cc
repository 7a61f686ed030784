// Speed of the engine on the real model (KV_SMOLLM2_GGUF), 2 threads: prefill in tokens/s, decode
// in ms per token on coded rows, loading, tokenizing, calibrating. Yardstick:
// tests/scripts/llama_speed.py.
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "codec/plan.h"
#include "engine/calibration.h"
#include "engine/decoder.h"
#include "engine/model_network.h"
#include "engine/prefill.h"

namespace kv {
namespace {

constexpr uint32_t kThreads = 2;

std::shared_ptr<const Model> real_model() {
  static std::shared_ptr<const Model> model = [] {
    const char* path = std::getenv("KV_SMOLLM2_GGUF");
    auto loaded = path == nullptr ? Result<std::shared_ptr<const Model>>(
                                        Status(StatusCode::not_found, "KV_SMOLLM2_GGUF is not set"))
                                  : Model::load(path);
    return loaded.ok() ? *loaded : nullptr;
  }();
  return model;
}

// The calibration text over and over: real text of any length.
std::vector<Token> text_tokens(const Model& model, size_t n) {
  auto ids = model.tokenizer().encode(kCalibrationText);
  std::vector<Token> out;
  while (out.size() < n) out.insert(out.end(), ids->begin(), ids->end());
  out.resize(n);
  return out;
}

KvCache new_cache(const Model& model) {
  auto profile = std::make_shared<const Profile>(*plain_profile(model.spec(), {}));
  auto codec = Codec::create(model.spec(), profile);
  return KvCache(*codec, {"bench", model.spec().fingerprint, profile->id()});
}

void BM_Prefill(benchmark::State& state) {
  auto model = real_model();
  if (!model) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  auto tokens = text_tokens(*model, static_cast<size_t>(state.range(0)));
  Threads threads(kThreads);
  Prefill prefill(*model, threads);
  for (auto _ : state) {
    KvCache cache = new_cache(*model);
    if (!prefill.extend(tokens, cache, Deadline::max()).ok()) state.SkipWithError("prefill");
  }
  state.counters["tokens/s"] = benchmark::Counter(
      static_cast<double>(state.iterations() * state.range(0)), benchmark::Counter::kIsRate);
}
BENCHMARK(BM_Prefill)
    ->Arg(512)
    ->Arg(3000)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(1);

void BM_DecodeOnCodes(benchmark::State& state) {
  auto model = real_model();
  if (!model) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  auto tokens = text_tokens(*model, static_cast<size_t>(state.range(0)));
  Threads threads(kThreads);
  Prefill prefill(*model, threads);
  Decoder decoder(*model, threads);
  KvCache cache = new_cache(*model);
  if (!prefill.extend(tokens, cache, Deadline::max()).ok()) state.SkipWithError("prefill");
  std::vector<float> logits(model->shape().vocab);
  for (auto _ : state) {
    if (!decoder.step(tokens[0], cache, logits).ok()) state.SkipWithError("step");
  }
}
BENCHMARK(BM_DecodeOnCodes)
    ->Arg(128)
    ->Arg(4096)
    ->Unit(benchmark::kMillisecond)
    ->UseRealTime()
    ->Iterations(32);

void BM_LoadModel(benchmark::State& state) {
  const char* path = std::getenv("KV_SMOLLM2_GGUF");
  if (path == nullptr) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  for (auto _ : state) benchmark::DoNotOptimize(Model::load(path));
}
BENCHMARK(BM_LoadModel)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_Calibrate(benchmark::State& state) {
  auto model = real_model();
  if (!model) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  auto network = make_network(model, kThreads);
  auto base = plain_profile(model->spec(), {});
  for (auto _ : state) benchmark::DoNotOptimize(calibrate(**network, *base, Deadline::max()));
}
BENCHMARK(BM_Calibrate)->Unit(benchmark::kMillisecond)->UseRealTime()->Iterations(1);

void BM_Tokenize(benchmark::State& state) {
  auto model = real_model();
  if (!model) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  for (auto _ : state) benchmark::DoNotOptimize(model->tokenizer().encode(kCalibrationText));
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations() * kCalibrationText.size()));
}
BENCHMARK(BM_Tokenize)->UseRealTime();

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
