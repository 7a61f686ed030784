// Cost of m new tokens after n stored ones in the engine, on the real model (KV_SMOLLM2_GGUF), rows
// coded as by default (tq84): on 2 threads by the clock, and on one by the processor's time, which
// others on the machine disturb less.
//
// Yardstick, in the same run: the work of these m tokens at the speed of this engine's long
// prefill, whose time is taken to be linear * N + square * N^2 (two lengths are measured). Every
// time is the best of a few. `work_ms` is the yardstick, `over` the part of the best time beyond
// 3 ms (6 of one thread) as a multiple of it: the goal is 1.15. BM_PlainProducts: a library's
// products of a layer's shapes, where the build has one, for BM_LongPrefill's.
#include <benchmark/benchmark.h>
#ifdef KV_BENCH_OPENBLAS
#include <cblas.h>
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "codec/plan.h"
#include "engine/calibration.h"
#include "engine/model_network.h"
#include "engine/prompt.h"
#include "engine/threads.h"

namespace kv {
namespace {

constexpr uint32_t kLong[] = {1024, 3072};  // lengths of the long prefills
constexpr int kRuns = 3;

std::shared_ptr<const Model> real_model() {
  static std::shared_ptr<const Model> model = [] {
    const char* path = std::getenv("KV_SMOLLM2_GGUF");
    if (path == nullptr) return std::shared_ptr<const Model>();
    auto loaded = Model::load(path);
    return loaded.ok() ? *loaded : nullptr;
  }();
  return model;
}

// Milliseconds of the clock, or of the processor where there is one thread.
template <typename Work>
double ms_of(uint32_t threads, const Work& work) {
  const clockid_t clock = threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
  auto now = [clock] {
    timespec t{};
    clock_gettime(clock, &t);
    return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
  };
  const double start = now();
  work();
  return now() - start;
}

// One sequence that grows and is cut back to block ends.
class Hits {
 public:
  Hits(std::shared_ptr<const Model> model, uint32_t threads)
      : threads_(threads), network_(*make_network(model, threads)), cache_(new_cache(*model)) {
    auto ids = model->tokenizer().encode(kCalibrationText);
    while (tokens_.size() < model->shape().context) {
      tokens_.insert(tokens_.end(), ids->begin(), ids->end());
    }
    for (int i = 0; i < 2; ++i) {
      long_ms_[i] = time(0, kLong[i]);
      for (int run = 1; run < kRuns; ++run) long_ms_[i] = std::min(long_ms_[i], time(0, kLong[i]));
    }
  }

  /// Milliseconds of tokens [n, n + m) after n stored ones; n is a block end.
  double time(uint32_t n, uint32_t m) {
    if (cache_.tokens() > n) KV_CHECK(cache_.rewind(n).ok());
    compute(n);
    return ms_of(threads_, [&] { compute(n + m); });
  }
  /// Time that these m tokens would take as a part of a long prefill.
  double work_ms(double n, double m) const {
    const double a = kLong[0], b = kLong[1];
    const double square = (long_ms_[1] / b - long_ms_[0] / a) / (b - a);
    const double linear = long_ms_[0] / a - square * a;
    return linear * m + square * ((n + m) * (n + m) - n * n);
  }
  double long_ms() const { return long_ms_[1]; }

 private:
  static KvCache new_cache(const Model& model) {
    CodingSettings settings;
    settings.k_bits = 8;
    auto profile = std::make_shared<const Profile>(*plain_profile(model.spec(), settings));
    auto codec = Codec::create(model.spec(), profile);
    return KvCache(*codec, {"bench", model.spec().fingerprint, profile->id()});
  }
  void compute(uint32_t end) {
    auto some = std::span<const Token>(tokens_).first(end);
    KV_CHECK(compute_prompt(*network_, some, cache_, Deadline::max()).ok());
  }

  const uint32_t threads_;
  std::unique_ptr<Network> network_;
  KvCache cache_;
  std::vector<Token> tokens_;
  double long_ms_[2] = {};
};

Hits* hits(uint32_t threads) {
  static std::unique_ptr<Hits> by_threads[3];
  if (!by_threads[threads] && real_model()) {
    by_threads[threads] = std::make_unique<Hits>(real_model(), threads);
  }
  return by_threads[threads].get();
}

void BM_Hit(benchmark::State& state) {
  const auto threads = static_cast<uint32_t>(state.range(0));
  Hits* h = hits(threads);
  if (h == nullptr) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  const auto n = static_cast<uint32_t>(state.range(1)), m = static_cast<uint32_t>(state.range(2));
  double best = 1e9;
  for (auto _ : state) {
    const double ms = h->time(n, m);
    best = std::min(best, ms);
    state.SetIterationTime(ms / 1e3);
  }
  const double work = h->work_ms(n, m), free = 6.0 / threads;
  state.counters["best_ms"] = best;
  state.counters["work_ms"] = work;
  state.counters["over"] = std::max(best - free, 0.0) / work;
}
// All m after one n before the next n: its tokens are computed once.
void grid(benchmark::internal::Benchmark* bench) {
  for (int64_t threads : {1, 2}) {
    for (int64_t n : {0, 512, 2048, 4096, 7168}) {
      for (int64_t m : {1,  2,  3,  4,  5,  6,   7,   8,   12,  16,  24,
                        32, 33, 34, 48, 64, 100, 128, 256, 257, 512, 1024}) {
        bench->Args({threads, n, m});
      }
    }
  }
}
BENCHMARK(BM_Hit)
    ->ArgNames({"threads", "n", "m"})
    ->Apply(grid)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(kRuns);

struct Shape {
  uint32_t rows, columns;  // of the weights
};
std::vector<Shape> layer_shapes(const ModelShape& s) {
  const uint32_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  return {{q, s.width},     {kv, s.width},    {kv, s.width},   {s.width, q},
          {s.ffn, s.width}, {s.ffn, s.width}, {s.width, s.ffn}};
}
double layer_flop(const ModelShape& s) {
  double flop = 0;
  for (const Shape& shape : layer_shapes(s)) flop += 2.0 * shape.rows * shape.columns;
  return flop;
}

// The long prefill's products alone would take this many GFLOP/s; attention comes on top.
void BM_LongPrefill(benchmark::State& state) {
  Hits* h = hits(static_cast<uint32_t>(state.range(0)));
  if (h == nullptr) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  for (auto _ : state) state.SetIterationTime(h->long_ms() / 1e3);
  const ModelShape& s = real_model()->shape();
  const double flop = layer_flop(s) * s.layers * kLong[1];
  state.counters["products_GFLOP/s"] = flop / h->long_ms() / 1e6;
  state.counters["all_GFLOP/s"] =
      (flop + 2.0 * s.heads * s.head_dim * s.layers * double{kLong[1]} * kLong[1]) / h->long_ms() /
      1e6;
  state.counters["linear_ms_per_token"] = h->work_ms(0, 1);
}
BENCHMARK(BM_LongPrefill)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(1);

#ifdef KV_BENCH_OPENBLAS
void BM_PlainProducts(benchmark::State& state) {
  if (!real_model()) return state.SkipWithError("KV_SMOLLM2_GGUF is not set");
  constexpr uint32_t kRows = 256, kTile = 192;
  openblas_set_num_threads(1);
  const ModelShape& s = real_model()->shape();
  const size_t most = std::max(size_t{s.ffn}, size_t{s.heads} * s.head_dim) * s.width;
  std::vector<float> in(size_t{kRows} * s.ffn * 2, 0.5f), w(most, 0.25f), out(in.size());
  Threads threads(static_cast<uint32_t>(state.range(0)));
  double best = 1e9;
  for (auto _ : state) {
    const double ms = ms_of(threads.count(), [&] {
      for (const Shape& shape : layer_shapes(s)) {
        const uint32_t tiles = (shape.rows + kTile - 1) / kTile;
        threads.run(tiles, [&](uint32_t task, uint32_t) {
          const uint32_t first = task * kTile, n = std::min(kTile, shape.rows - first);
          cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kRows, static_cast<int>(n),
                      static_cast<int>(shape.columns), 1.0f, in.data(),
                      static_cast<int>(shape.columns), w.data() + size_t{first} * shape.columns,
                      static_cast<int>(shape.columns), 0.0f, out.data() + first,
                      static_cast<int>(shape.rows));
        });
      }
    });
    best = std::min(best, ms);
    state.SetIterationTime(ms / 1e3);
  }
  state.SetLabel(openblas_get_corename());
  state.counters["GFLOP/s"] = layer_flop(s) * kRows / best / 1e6;
}
BENCHMARK(BM_PlainProducts)
    ->ArgName("threads")
    ->Arg(1)
    ->Arg(2)
    ->Unit(benchmark::kMillisecond)
    ->UseManualTime()
    ->Iterations(20);
#endif

}  // namespace
}  // namespace kv

BENCHMARK_MAIN();
