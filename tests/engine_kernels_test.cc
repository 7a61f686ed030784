// Kernels against a double-precision sum over dequantised rows; order independence; the thread
// pool.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <fstream>
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

// Rows that gguf's own dequantisation took apart (tests/scripts/make_packed_golden.py).
struct PackedRow {
  TensorType type;
  std::vector<uint8_t> bytes;
  std::vector<float> values;
};

std::vector<PackedRow> packed_rows() {
  std::vector<PackedRow> rows;
  std::ifstream in(std::string(KV_GOLDEN_DIR) + "/engine/packed_rows.txt");
  std::string line, word;
  std::getline(in, line);  // the comment
  for (uint32_t type = 0; in >> type >> word;) {
    PackedRow row{static_cast<TensorType>(type), {}, {}};
    for (size_t i = 0; i < word.size(); i += 2) {
      row.bytes.push_back(static_cast<uint8_t>(std::stoul(word.substr(i, 2), nullptr, 16)));
    }
    for (int i = 0; i < 512 && in >> word; ++i) {
      row.values.push_back(
          std::bit_cast<float>(static_cast<uint32_t>(std::stoul(word, nullptr, 16))));
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<const EngineKernels*> kernel_sets() {
  std::vector<const EngineKernels*> sets = {&scalar_engine_kernels()};
  if (avx2_engine_kernels() != nullptr) sets.push_back(avx2_engine_kernels());
  return sets;
}

TEST(EngineKernels, EveryPackedTypeWidensAsGgufDoes) {
  auto rows = packed_rows();
  ASSERT_EQ(rows.size(), 5u);
  for (const PackedRow& row : rows) {
    ASSERT_EQ(row.bytes.size(), row_bytes(row.type, 512));
    for (const EngineKernels* k : kernel_sets()) {
      std::vector<float> out(512);
      k->of(row.type).widen(row.bytes.data(), 512, out.data());
      EXPECT_EQ(out, row.values) << k->name << " " << to_string(row.type);
    }
  }
}

TEST(EngineKernels, EveryPackedTypeMultipliesAsItWidens) {
  auto x = random_values(512, 8);
  std::vector<float> sums(512 / 32);
  for (const PackedRow& row : packed_rows()) {
    double expected = 0, size = 0;
    for (size_t j = 0; j < 512; ++j) {
      expected += static_cast<double>(row.values[j]) * x[j];
      size += std::fabs(static_cast<double>(row.values[j]) * x[j]);
    }
    for (const EngineKernels* k : kernel_sets()) {
      k->group_sums(x.data(), 512, sums.data());
      float y = 0;
      k->of(row.type).rows(row.bytes.data(), 0, 1, 512, x.data(), sums.data(), &y);
      EXPECT_NEAR(y, expected, 1e-6 * size) << k->name << " " << to_string(row.type);
    }
  }
}

TEST(EngineKernels, EveryTypeAgreesWithDequantisedDoubles) {
  auto model = tiny_model();
  const LayerWeights& l = model->layers()[0];
  for (const Matrix* w : {&l.q, &l.k, &l.v, &l.o, &l.down, &model->embedding()}) {
    auto x = random_values(w->columns, 5);
    std::vector<float> row(w->columns), sums(w->columns / 32);
    for (const EngineKernels* k : kernel_sets()) {
      k->group_sums(x.data(), w->columns, sums.data());
      std::vector<float> y(w->rows);
      k->of(w->type).rows(w->data, w->stride, w->rows, w->columns, x.data(), sums.data(), y.data());
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
    auto source = [](uint32_t, Side, uint32_t, float*) { return Status(); };
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
