// Kernels against a double-precision sum over dequantised rows; order independence; the thread
// pool.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <random>

#include "engine/kernels.h"
#include "engine/model.h"
#include "engine/prefill.h"
#include "engine/threads.h"
#include "tests/tiny_gguf.h"

namespace kv {
namespace {

std::shared_ptr<const Model> tiny_model() {
  auto file = GgufFile::parse(Bytes::adopt(TinyGguf().write()));
  KV_CHECK(file.ok());
  auto model = Model::load(std::move(*file));
  KV_CHECK(model.ok());
  return *model;
}

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

EngineKernels::Rows rows_of(const EngineKernels& k, TensorType type) {
  return type == TensorType::q4_1   ? k.q4_1
         : type == TensorType::q8_0 ? k.q8_0
         : type == TensorType::f16  ? k.f16
                                    : k.f32;
}

TEST(EngineKernels, EveryTypeAgreesWithDequantisedDoubles) {
  auto model = tiny_model();
  const LayerWeights& l = model->layers()[0];
  for (const Matrix* w : {&l.q, &l.k, &l.v, &l.o, &l.down, &model->embedding()}) {
    auto x = random_values(w->columns, 5);
    std::vector<float> row(w->columns), sums(w->columns / 32);
    for (const EngineKernels* k : {&scalar_engine_kernels(), avx2_engine_kernels()}) {
      if (k == nullptr) continue;
      k->group_sums(x.data(), w->columns, sums.data());
      std::vector<float> y(w->rows);
      rows_of(*k, w->type)(w->data, w->stride, w->rows, w->columns, x.data(), sums.data(),
                           y.data());
      for (uint32_t r = 0; r < w->rows; ++r) {
        dequantise_row(*w, r, row.data());
        double expected = 0, size = 0;
        for (uint32_t j = 0; j < w->columns; ++j) {
          expected += static_cast<double>(row[j]) * x[j];
          size += std::fabs(static_cast<double>(row[j]) * x[j]);
        }
        EXPECT_NEAR(y[r], expected, 3e-6 * (size + 1)) << k->name << " " << to_string(w->type);
      }
    }
  }
}

TEST(EngineKernels, OneRowAtATimeGivesTheSameBits) {
  auto model = tiny_model();
  for (const Matrix* w : {&model->layers()[0].gate, &model->embedding()}) {
    auto x = random_values(w->columns, 6);
    std::vector<float> sums(w->columns / 32), all(w->rows), one(w->rows);
    group_sums(x.data(), w->columns, sums.data());
    matvec(*w, {x.data(), sums.data()}, 0, w->rows, all.data());
    for (uint32_t r = 0; r < w->rows; ++r) matvec(*w, {x.data(), sums.data()}, r, r + 1, &one[r]);
    EXPECT_EQ(all, one);
  }
}

TEST(EngineThreads, EveryTaskRunsOnce) {
  for (uint32_t count : {1u, 2u, 5u}) {
    Threads threads(count);
    for (uint32_t round = 0; round < 400; ++round) {
      uint32_t tasks = round % 37;
      std::vector<std::atomic<int>> seen(tasks);
      threads.run(tasks, [&](uint32_t task, uint32_t worker) {
        EXPECT_LT(worker, count);
        seen[task].fetch_add(1);
      });
      for (auto& s : seen) ASSERT_EQ(s.load(), 1);
    }
  }
}

TEST(EnginePrefill, ThreadsDoNotChangeABit) {
  auto model = tiny_model();
  std::vector<Token> tokens(700);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<Token>((i * 37) % 256);
  std::vector<float> results[2];
  for (uint32_t count : {1u, 2u}) {
    Threads threads(count);
    Prefill prefill(*model, threads, 256);
    auto source = [](uint32_t, Side, float*) { return Status(); };
    auto sink = [&](uint32_t, uint32_t rows, const float* k, const float* v) {
      auto& out = results[count - 1];
      out.insert(out.end(), k, k + rows * 32);
      out.insert(out.end(), v, v + rows * 32);
      return Status();
    };
    ASSERT_TRUE(prefill.run(tokens, 0, source, sink, Deadline::max(), true).ok());
    auto* hidden = prefill.hidden(699);
    results[count - 1].insert(results[count - 1].end(), hidden, hidden + 64);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace kv
