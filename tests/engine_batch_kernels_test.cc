// Products of many rows of activations at once: every row gets the bits of its own product.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/batch_kernels.h"
#include "engine/kernels.h"

namespace kv {
namespace {

constexpr TensorType kTypes[] = {TensorType::f32,  TensorType::f16,  TensorType::q4_1,
                                 TensorType::q5_0, TensorType::q8_0, TensorType::q4_k,
                                 TensorType::q6_k};

std::vector<float> random_values(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(random);
  return x;
}

// Random bytes are valid weights of every type but for exponents of all ones.
std::vector<uint8_t> random_weights(TensorType type, uint32_t rows, uint32_t columns,
                                    uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> w(row_bytes(type, columns) * rows);
  std::vector<float> values(columns);
  for (uint32_t r = 0; r < rows; ++r) {
    uint8_t* row = w.data() + r * row_bytes(type, columns);
    do {
      for (size_t i = 0; i < row_bytes(type, columns); ++i) row[i] = static_cast<uint8_t>(random());
      if (type == TensorType::f32) {
        auto floats = random_values(columns, seed + r);
        std::memcpy(row, floats.data(), columns * sizeof(float));
      } else if (type == TensorType::f16) {
        for (uint32_t j = 0; j < columns; ++j) row[2 * j + 1] &= 0xbf;
      }
      scalar_engine_kernels().of(type).widen(row, columns, values.data());
    } while (!std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); }));
  }
  return w;
}

using RowsOf = BatchRows (*)(TensorType);

void expect_rows_of_their_own(const EngineKernels& single, RowsOf batch, TensorType type,
                              uint32_t count, uint32_t columns) {
  constexpr uint32_t kRows = 5;
  const uint64_t stride = row_bytes(type, columns);
  auto w = random_weights(type, kRows, columns, 100 + count);
  auto x = random_values(size_t{count} * columns, count);
  BatchActivations packed;
  packed.start(count, columns);
  for (uint32_t b = 0; b < count; ++b) packed.put(b, x.data() + b * columns);
  std::vector<float> sums(columns / 32), expected(kRows), given(kRows * count, 77.0f);
  uint32_t at = 0;
  for (auto panel : packed.panels()) {
    // The sums are part of the set: here those of `single`, whatever set is chosen.
    std::vector<float> own_sums(columns / 32 * kBatchRows);
    for (uint32_t b = 0; b < panel.rows; ++b) {
      single.group_sums(x.data() + (at + b) * columns, columns, sums.data());
      for (uint32_t g = 0; g < columns / 32; ++g) own_sums[g * kBatchRows + b] = sums[g];
    }
    panel.sums = own_sums.data();
    batch(type)(w.data(), stride, kRows, columns, panel, given.data() + at * kRows, kRows);
    at += panel.rows;
  }
  ASSERT_EQ(at, count);
  for (uint32_t b = 0; b < count; ++b) {
    const float* row = x.data() + b * columns;
    single.group_sums(row, columns, sums.data());
    single.of(type).rows(w.data(), stride, kRows, columns, row, sums.data(), expected.data());
    for (uint32_t r = 0; r < kRows; ++r) {
      ASSERT_EQ(given[b * kRows + r], expected[r])
          << single.name << " " << to_string(type) << " row " << b << " of " << count;
    }
  }
}

TEST(EngineBatchKernels, EveryTypeAndRowCountGivesTheBitsOfSingleProducts) {
  for (TensorType type : kTypes) {
    for (uint32_t count = 1; count <= 16; ++count) {
      for (uint32_t columns : {256u, 768u}) {
        expect_rows_of_their_own(scalar_engine_kernels(), scalar_batch_rows, type, count, columns);
        if (avx2_engine_kernels() == nullptr) continue;
        expect_rows_of_their_own(*avx2_engine_kernels(), avx2_batch_rows, type, count, columns);
        if (avx512_kernels() == nullptr) continue;
        expect_rows_of_their_own(*avx2_engine_kernels(), avx512_batch_rows, type, count, columns);
      }
    }
  }
}

TEST(EngineBatchKernels, TheChosenSetIsThatOfSingleProducts) {
  constexpr uint32_t kColumns = 512, kRows = 9, kCount = 11;
  for (TensorType type : kTypes) {
    auto w = random_weights(type, kRows, kColumns, 7);
    Matrix matrix{type, kRows, kColumns, w.data(), row_bytes(type, kColumns)};
    auto x = random_values(kCount * kColumns, 8);
    BatchActivations packed;
    packed.start(kCount, kColumns);
    for (uint32_t b = 0; b < kCount; ++b) packed.put(b, x.data() + b * kColumns);
    std::vector<float> given(kCount * kRows), expected(kCount * kRows), sums(kColumns / 32);
    matvec_batch(matrix, packed, 0, 4, given.data(), kRows);
    matvec_batch(matrix, packed, 4, kRows, given.data() + 4, kRows);
    for (uint32_t b = 0; b < kCount; ++b) {
      group_sums(x.data() + b * kColumns, kColumns, sums.data());
      matvec(matrix, {x.data() + b * kColumns, sums.data()}, 0, kRows, &expected[b * kRows]);
    }
    EXPECT_EQ(given, expected) << to_string(type);
  }
}

}  // namespace
}  // namespace kv
