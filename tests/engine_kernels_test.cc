// Kernels against a double-precision sum over dequantised rows; outputs don't depend on what is
// computed beside them, nor on the SIMD set; the thread pool.
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "engine/kernels.h"
#include "engine/layer_ops.h"
#include "engine/model.h"
#include "engine/panels.h"
#include "engine/prefill.h"
#include "engine/rounded.h"
#include "engine/threads.h"
#include "tests/support/engine_kernel_sets.h"
#include "tests/support/engine_packed.h"
#include "tests/support/tiny_model.h"

namespace kv {
namespace {

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

TEST(EngineKernels, EveryPackedTypeIsTakenApartAsGgufDoes) {
  auto rows = packed_rows();
  ASSERT_EQ(rows.size(), 5u);
  for (const PackedRow& row : rows) {
    ASSERT_EQ(row.bytes.size(), row_bytes(row.type, 512));
    EXPECT_EQ(dequantised(row.type, row.bytes.data(), 512), row.values) << to_string(row.type);
  }
}

// What a product may differ from the exact sum of `row` times `x`.
double tolerance(const std::vector<float>& row, const float* x, double& exact) {
  double size = 0;
  exact = 0;
  for (size_t j = 0; j < row.size(); ++j) {
    exact += static_cast<double>(row[j]) * x[j];
    size += std::fabs(static_cast<double>(row[j]) * x[j]);
  }
  return 1e-6 * size;
}

// … of panels, whose activations may be rounded (rounded.h).
double panel_tolerance(TensorType type, const std::vector<float>& row, const float* x,
                       double& exact) {
  double near = tolerance(row, x, exact);
  if (!panel_integers(type)) return near;
  for (size_t g = 0; g < row.size(); g += 32) {
    float most = 0;
    double weights = 0;
    for (size_t j = g; j < g + 32; ++j) {
      most = std::max(most, std::fabs(x[j]));
      weights += std::fabs(static_cast<double>(row[j]));
    }
    near += weights * most / (2 * static_cast<double>(kRoundedMost));
  }
  return near;
}

// 37 weight rows as three panels, of which the last is not full.
struct Panels {
  Panels(TensorType type, uint32_t columns, uint32_t seed)
      : w(random_weights(type, kRows, columns, seed)), stride(panel_bytes(type, columns)) {
    const uint64_t row = row_bytes(type, columns);
    bytes.resize(stride * kPanels);
    for (uint32_t p = 0; p < kPanels; ++p) {
      make_panel(type, w.data() + p * kPanelRows * row, row,
                 std::min(kPanelRows, kRows - p * kPanelRows), columns, bytes.data() + p * stride);
    }
  }
  static constexpr uint32_t kRows = 37, kPanels = 3, kOut = kPanels * kPanelRows;
  std::vector<uint8_t> w, bytes;
  uint64_t stride;
};

std::vector<float> products(const EngineKernels& k, TensorType type, const Panels& p,
                            uint32_t columns, const Activations& x) {
  RoundedRows rounded;
  std::vector<float> y(size_t{x.count} * Panels::kOut);
  k.of(type).multiply(p.bytes.data(), p.stride, Panels::kPanels, columns, rounded.round(x, columns),
                      y.data(), Panels::kOut);
  return y;
}

TEST(EngineKernels, PanelsMultiplyAsTheirRowsWidenWhateverStandsBeside) {
  constexpr uint32_t kCount = 17;
  for (uint32_t columns : {96u, 256u, 768u}) {
    for (TensorType type : kTypes) {
      if (row_bytes(type, columns) == 0) continue;  // rows of whole groups
      Panels p(type, columns, columns);
      const size_t x_stride = columns + 3;
      auto x = random_values(kCount * x_stride, 6);
      for (const EngineKernels* k : kernel_sets()) {
        auto all = products(*k, type, p, columns, {x.data(), x_stride, kCount});
        for (uint32_t n : {2u, 3u}) {  // tiles that 17 rows and single ones don't come to
          auto some = products(*k, type, p, columns, {x.data(), x_stride, n});
          ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin()))
              << k->name << " " << to_string(type) << " " << n << " rows";
        }
        for (uint32_t b = 0; b < kCount; ++b) {
          auto one = products(*k, type, p, columns, {x.data() + b * x_stride});
          ASSERT_TRUE(std::equal(one.begin(), one.end(), all.begin() + b * Panels::kOut))
              << k->name << " " << to_string(type) << " row " << b;
          for (uint32_t r = 0; r < Panels::kOut; ++r) {
            if (r >= Panels::kRows) {
              ASSERT_EQ(one[r], 0.0f) << k->name << " " << to_string(type);
              continue;
            }
            auto row = dequantised(type, p.w.data() + r * row_bytes(type, columns), columns);
            double exact, near = panel_tolerance(type, row, x.data() + b * x_stride, exact);
            ASSERT_NEAR(one[r], exact, near) << k->name << " " << to_string(type) << " " << r;
          }
        }
      }
    }
  }
}

int32_t code_of(const std::vector<int8_t>& codes, uint32_t column) {
  const int8_t* bytes = &codes[rounded_bytes(column / 8 * 8) + column % 2 * 16 + column % 8 / 2];
  return bytes[0] * 65536 + bytes[4] * 256 + bytes[8];
}

TEST(EngineRounded, ACodeTimesItsScaleIsNearItsValueAndTheSumIsTheirs) {
  constexpr uint32_t kGroups = 64, kN = kGroups * 32;
  auto x = random_values(kN, 11);
  for (uint32_t g = 0; g < kGroups; ++g) {  // of any size, and one value that dwarfs the others
    for (uint32_t j = 0; j < 32; ++j)
      x[g * 32 + j] *= std::pow(10.0f, static_cast<float>(g % 50) - 18);
    if (g % 3 == 0) x[g * 32 + g % 32] *= 1e3f;
  }
  std::fill_n(x.begin(), 32, 0.0f);
  for (const EngineKernels* k : kernel_sets()) {
    std::vector<int8_t> codes(rounded_bytes(kN));
    std::vector<float> scales(kGroups), sums(kGroups);
    k->round(x.data(), kN, codes.data(), scales.data(), sums.data());
    for (uint32_t g = 0; g < kGroups; ++g) {
      double most = 0, sum = 0;
      for (uint32_t j = 0; j < 32; ++j) most = std::max<double>(most, std::fabs(x[g * 32 + j]));
      for (uint32_t j = g * 32; j < g * 32 + 32; ++j) {
        const double value = code_of(codes, j) * static_cast<double>(scales[g]);
        // Half a code, and fp32's rounding of the scale, its inverse and their product with x.
        ASSERT_NEAR(value, x[j], most / 16e6 + std::fabs(x[j]) * 2e-7) << k->name << " " << j;
        sum += value;
      }
      ASSERT_NEAR(sums[g], sum, 1e-6 * std::fabs(sum)) << k->name << " " << g;
    }
  }
}

TEST(EngineRounded, EverySetGivesTheSameBits) {
  constexpr uint32_t kN = 4096;
  auto x = random_values(kN, 12);
  for (uint32_t j = 0; j < 512; ++j) {  // halves of a code
    x[j] = j % 32 == 0 ? kRoundedMost : std::round(x[j] * 100) + 0.5f;
  }
  for (uint32_t j = 512; j < 1024; ++j) x[j] *= j < 768 ? 1e-21f : 1e-20f;  // below the least
  x[2000] = NAN, x[3000] = INFINITY;
  std::vector<int8_t> expected(rounded_bytes(kN));
  std::vector<float> scales(2 * kN / 32);
  round_row(x.data(), kN, expected.data(), scales.data(), scales.data() + kN / 32);
  for (float& s : scales) s = std::isnan(s) ? -77.0f : s;
  for (const EngineKernels* k : kernel_sets()) {
    std::vector<int8_t> codes(expected.size(), 0x55);
    std::vector<float> other(scales.size(), 55);
    k->round(x.data(), kN, codes.data(), other.data(), other.data() + kN / 32);
    for (float& s : other) s = std::isnan(s) ? -77.0f : s;
    EXPECT_EQ(codes, expected) << k->name;
    EXPECT_EQ(other, scales) << k->name;
  }
}

// Sums as large as 16 bits must hold, in either direction, of every byte of a code.
TEST(EngineRounded, TheLargestSumsAreExact) {
  constexpr uint32_t kN = 256;
  std::vector<std::vector<float>> inputs(4, std::vector<float>(kN, 1.0f));
  for (uint32_t j = 0; j < kN; ++j) {
    inputs[1][j] = -1.0f;
    inputs[2][j] = j % 32 == 0 ? kRoundedMost : -128.0f * 256 - 128;
    inputs[3][j] = j % 32 == 0 ? kRoundedMost : 127.0f * 256 + 127;
  }
  for (TensorType type : {TensorType::q4_1, TensorType::q5_0}) {
    Panels p(type, kN, 3);
    const auto at = panel_layout(type);
    const uint16_t scale = 0x3c00;  // 1; offset 0: every weight is 15, of Q5_0 31 - 16
    for (uint32_t panel = 0; panel < Panels::kPanels; ++panel) {
      for (uint32_t g = 0; g < kN / 32; ++g) {
        uint8_t* group = p.bytes.data() + panel * p.stride + panel_group(type, g);
        std::fill_n(group, at.scales, uint8_t{0xff});
        std::fill_n(group + at.scales, at.group - at.scales, uint8_t{0});
        for (uint32_t r = 0; r < 16; ++r) std::memcpy(group + at.scales + 2 * r, &scale, 2);
      }
    }
    for (const auto& x : inputs) {
      double exact = 0;
      for (float v : x) exact += 15.0 * v;
      for (const EngineKernels* k : kernel_sets()) {
        for (float y : products(*k, type, p, kN, {x.data()})) {
          ASSERT_NEAR(y, exact, 1e-6 * std::fabs(exact))
              << k->name << " " << to_string(type) << " " << x[1];
        }
      }
    }
  }
}

TEST(EngineRounded, WhatIsNotFiniteMakesEveryOutputNaN) {
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    for (TensorType type : {TensorType::q4_1, TensorType::q5_0, TensorType::q4_k}) {
      Panels p(type, 256, 9);
      auto x = random_values(256, 6);
      x[77] = bad;
      for (const EngineKernels* k : kernel_sets()) {
        for (float y : products(*k, type, p, 256, {x.data()})) {
          EXPECT_TRUE(std::isnan(y)) << k->name << " " << to_string(type) << " " << bad;
        }
      }
    }
  }
}

TEST(EngineKernels, EverySetGivesTheSameBits) {
  constexpr uint32_t kColumns = 512;
  auto x = random_values(kColumns, 4);
  const EngineKernels& scalar = scalar_engine_kernels();
  for (TensorType type : kTypes) {
    Panels p(type, kColumns, 5);
    for (const EngineKernels* k : kernel_sets()) {
      EXPECT_EQ(products(*k, type, p, kColumns, {x.data()}),
                products(scalar, type, p, kColumns, {x.data()}))
          << k->name << " " << to_string(type);
    }
  }
}

TEST(EngineKernels, AMatrixMultipliesTheRowsAskedFor) {
  auto model = tiny_model();
  for (const Matrix* w : {&model->layers()[0].gate, &model->layers()[0].v, &model->embedding()}) {
    auto x = random_values(w->columns, 6);
    RoundedRows rounded;
    const Activations input = rounded.round({x.data()}, w->columns);
    std::vector<float> all(w->rows), row(w->columns);
    multiply(*w, input, 0, w->rows, all.data(), 0);
    for (uint32_t r = 0; r < w->rows; ++r) {
      const uint32_t first = r / kPanelRows * kPanelRows;
      std::vector<float> some(r + 1 - first);
      multiply(*w, input, first, r + 1, some.data(), 0);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin() + first)) << r;
      dequantise_row(*w, r, row.data());
      double exact, near = panel_tolerance(w->type, row, x.data(), exact);
      ASSERT_NEAR(all[r], exact, near) << r;
    }
  }
}

TEST(EngineLayerOps, ANormOfAnyWidthIsItsDefinition) {
  for (uint32_t width : {1u, 7u, 8u, 20u, 33u, 576u}) {
    auto x = random_values(width, width), weight = random_values(width, width + 1);
    double squares = 0;
    for (float v : x) squares += double{v} * v;
    const double scale = 1 / std::sqrt(squares / width + 1e-5);
    std::vector<float> out(width);
    rms_norm(x.data(), weight, 1e-5f, out.data());
    for (uint32_t i = 0; i < width; ++i) {
      const double expected = x[i] * scale * weight[i];
      EXPECT_NEAR(out[i], expected, 3e-7 * std::fabs(expected)) << width;
    }
    rms_norm(x.data(), weight, 1e-5f, x.data());
    EXPECT_EQ(x, out) << width;
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

// A long prompt in short chunks has more than 65,535 tasks in a layer.
TEST(EngineThreads, AnyNumberOfTasks) {
  for (uint32_t count : {1u, 2u, 5u}) {
    Threads threads(count);
    for (uint32_t tasks : {65'534u, 65'535u, 65'536u, 65'537u, 131'070u, 131'071u, 200'001u}) {
      std::vector<std::atomic<uint8_t>> seen(tasks);
      threads.run(tasks, [&](uint32_t task, uint32_t) { seen.at(task).fetch_add(1); });
      for (auto& s : seen) ASSERT_EQ(s.load(), 1) << tasks;
    }
  }
}

// run() ends when no task runs any more, so none meets a stack that is gone.
TEST(EngineThreads, WhatATaskThrowsIsThrownByRunOnceAllAreDone) {
  for (uint32_t count : {1u, 2u, 5u}) {
    Threads threads(count);
    for (uint32_t round = 0; round < 200; ++round) {
      std::atomic<uint32_t> running{0}, begun{0};
      auto body = [&](uint32_t task, uint32_t) {
        ++running;
        ++begun;
        if (task % 7 == round % 7) {
          --running;
          throw std::bad_alloc();
        }
        --running;
      };
      EXPECT_THROW(threads.run(40, body), std::bad_alloc);
      EXPECT_EQ(running, 0u);
      EXPECT_LE(begun, 40u);
      std::atomic<uint32_t> done{0};
      threads.run(40, [&](uint32_t, uint32_t) { ++done; });
      EXPECT_EQ(done, 40u);
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
    Prefill prefill(*model, threads);
    struct Keep : PrefillRows {
      explicit Keep(std::vector<float>& to) : out(to) {}
      Result<const AttentionRows*> take(uint32_t, uint32_t rows, float* k, float* v) override {
        out.insert(out.end(), k, k + rows * 32);
        out.insert(out.end(), v, v + rows * 32);
        return nullptr;
      }
      std::vector<float>& out;
    } keep(results[count - 1]);
    ASSERT_TRUE(prefill.run(tokens, 0, keep, Deadline::max(), true).ok());
    auto* hidden = prefill.hidden(699);
    results[count - 1].insert(results[count - 1].end(), hidden, hidden + 64);
  }
  EXPECT_EQ(results[0], results[1]);
}

}  // namespace
}  // namespace kv
