// The screen finds the very row that computing all products finds: weights near each other, equal
// ones, outliers, rows and inputs that are not finite. A real model's: engine_model_test.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "engine/network.h"
#include "engine/screen.h"

namespace kv {
namespace {

// fp32 rows as Q8_0, their scales as given.
struct Weights {
  Weights(uint32_t rows, uint32_t columns, uint32_t seed) : random(seed) {
    w = {TensorType::q8_0, rows, columns, nullptr, row_bytes(TensorType::q8_0, columns)};
    bytes.resize(rows * w.stride);
    for (uint32_t r = 0; r < rows; ++r) {
      for (uint32_t g = 0; g < columns / 32; ++g) {
        set_scale(r, g, 0x2000 + static_cast<uint16_t>(random() % 512));
        for (uint32_t j = 0; j < 32; ++j) at(r, g)[2 + j] = static_cast<uint8_t>(code());
      }
    }
    w.data = bytes.data();
  }
  uint8_t* at(uint32_t r, uint32_t g) { return bytes.data() + r * w.stride + g * 34; }
  void set_scale(uint32_t r, uint32_t g, uint16_t half) {
    at(r, g)[0] = static_cast<uint8_t>(half);
    at(r, g)[1] = static_cast<uint8_t>(half >> 8);
  }
  int code() { return std::clamp(static_cast<int>(normal(random) * 45), -127, 127); }
  std::vector<float> input() {
    std::vector<float> x(w.columns);
    for (float& v : x) v = normal(random);
    for (int i = 0; i < 3; ++i) x[random() % w.columns] *= 20;  // as real activations have
    return x;
  }
  Token best(const std::vector<float>& x) const {
    std::vector<float> y(w.rows);
    multiply(w, {x.data()}, 0, w.rows, y.data(), 0);
    return best_token(y);
  }
  // Row `to` becomes row `from` but for `changed` of its codes, one up or down.
  void resemble(uint32_t to, uint32_t from, uint32_t changed) {
    std::copy_n(at(from, 0), w.stride, at(to, 0));
    for (uint32_t i = 0; i < changed; ++i) {
      uint8_t& c = at(to, static_cast<uint32_t>(random() % (w.columns / 32)))[2 + random() % 32];
      c = static_cast<uint8_t>(c + (c < 120 || c > 136 ? 1 : -1));
    }
  }

  std::mt19937 random;
  std::normal_distribution<float> normal;
  std::vector<uint8_t> bytes;
  Matrix w;
};

TEST(Screen, FindsTheRowThatAllProductsFind) {
  for (uint32_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE(seed);
    Threads threads(1 + seed % 2);
    Weights m(5 + 1000 * seed, seed % 2 == 0 ? 64 : 640, seed);
    std::vector<float> typical(m.w.columns);
    for (float& v : typical) v = seed < 3 ? 1.0f : static_cast<float>(m.random() % 100);
    for (int i = 0; i < 40; ++i) m.resemble(m.random() % m.w.rows, m.random() % m.w.rows, i % 4);
    Screen screen(m.w, typical, threads);
    uint32_t told = 0;
    for (int i = 0; i < 60; ++i) {
      auto x = m.input();
      auto found = screen.best(x.data());
      if (!found) continue;
      ++told;
      ASSERT_EQ(static_cast<Token>(*found), m.best(x)) << i;
    }
    EXPECT_GT(told, 0u);
  }
}

TEST(Screen, TakesTheFirstOfEqualRows) {
  Threads threads(2);
  Weights m(3000, 640, 9);
  auto x = m.input();
  const auto best = static_cast<uint32_t>(m.best(x));
  for (uint32_t r : {2u, 77u, 1500u, 2999u}) m.resemble(r, best, 0);
  Screen screen(m.w, std::vector<float>(640, 1.0f), threads);
  EXPECT_EQ(screen.best(x.data()), std::min(best, 2u));
}

TEST(Screen, LooksAtRowsThatAreNotFiniteAndSaysSoOfInputs) {
  Threads threads(2);
  Weights m(3000, 64, 10);
  auto x = m.input();
  const auto best = static_cast<uint32_t>(m.best(x));
  const uint32_t infinite = best == 1234 ? 1235 : 1234;
  m.set_scale(infinite, 1, 0x7c00);
  for (uint32_t j = 0; j < 32; ++j) m.at(infinite, 1)[2 + j] = x[32 + j] > 0 ? 1 : 0xff;
  m.set_scale(infinite + 2, 1, 0x7e00);  // NaN
  ASSERT_EQ(static_cast<uint32_t>(m.best(x)), infinite);
  Screen screen(m.w, std::vector<float>(64, 1.0f), threads);
  auto found = screen.best(x.data());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(static_cast<Token>(*found), m.best(x));
  for (float bad : {NAN, INFINITY, -INFINITY}) {
    auto y = x;
    y[5] = bad;
    EXPECT_FALSE(screen.best(y.data()).has_value());
  }
  std::vector<float> zeros(64, 0.0f);
  auto row = screen.best(zeros.data());
  EXPECT_TRUE(!row || static_cast<Token>(*row) == m.best(zeros));
}

TEST(Screen, EverySetGivesTheSameBits) {
  std::mt19937 random(3);
  for (uint32_t groups : {1u, 2u, 20u}) {
    std::vector<uint8_t> block(size_t{groups} * kScreenGroupBytes);
    for (uint8_t& b : block) b = static_cast<uint8_t>(random());
    for (uint32_t g = 0; g < groups; ++g) {  // finite scales
      for (uint32_t r = 0; r < 16; ++r) block[g * kScreenGroupBytes + 257 + 2 * r] &= 0xbf;
    }
    ScreenInput x;
    for (uint32_t g = 0; g < groups; ++g) {
      int32_t sum = 0;
      for (int j = 0; j < 32; ++j) {
        x.codes.push_back(static_cast<int8_t>(j == 0 ? 127 : j == 1 ? -127 : random() % 255 - 127));
        sum += x.codes.back();
      }
      x.codes_15.push_back(15 * sum);
      x.scale.push_back(std::bit_cast<float>(0x3c000000u + static_cast<uint32_t>(random() % 9999)));
    }
    float expected[16];
    const float most = scalar_engine_kernels().screen(block.data(), groups, x, expected);
    for (const auto* set : {avx2_engine_kernels(), avx512_engine_kernels()}) {
      if (set == nullptr) continue;
      float out[16];
      EXPECT_EQ(set->screen(block.data(), groups, x, out), most) << set->name;
      EXPECT_TRUE(std::equal(out, out + 16, expected)) << set->name << " " << groups;
    }
  }
}

// fp32 rows, 64 columns each, as their values are.
struct Floats32 {
  explicit Floats32(std::vector<float> all) : values(std::move(all)) {
    w = {TensorType::f32, static_cast<uint32_t>(values.size() / 64), 64,
         reinterpret_cast<const uint8_t*>(values.data()), 256};
  }
  std::vector<float> values;
  Matrix w;
};

void expect_right(const Matrix& w, const std::vector<float>& x) {
  Threads threads(1);
  Screen screen(w, std::vector<float>(w.columns, 1.0f), threads);
  std::vector<float> y(w.rows);
  multiply(w, {x.data()}, 0, w.rows, y.data(), 0);
  auto found = screen.best(x.data());
  EXPECT_TRUE(!found || static_cast<Token>(*found) == best_token(y)) << *found;
}

// Weights and inputs whose squares, products or bounds leave the range of fp32.
TEST(Screen, NeverErrsAtTheEndsOfTheRange) {
  for (float size : {1e-42f, 1e-25f, 1e-18f, 1e-8f, 1.0f, 1e10f, 1e30f}) {
    std::vector<float> rows(640 * 64);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = size * (i / 64 == 333 ? 2.0f : 1.0f);
    Floats32 m(std::move(rows));
    for (float x : {1e-45f, 1e-40f, 1e-20f, 1.0f, -1.0f, 1e15f, 3.71e37f}) {
      SCOPED_TRACE(::testing::Message() << size << " times " << x);
      expect_right(m.w, std::vector<float>(64, x));
    }
  }
  // The estimate overflows where the product doesn't.
  std::vector<float> rows(128, -0.105f), x(64, 3.71e37f);
  std::fill(rows.begin() + 64, rows.end(), -0.104f);
  for (size_t j : {0u, 32u}) rows[j] = rows[64 + j] = 0.833f, x[j] = 0;
  expect_right(Floats32(std::move(rows)).w, x);
  // The product is rounded to multiples of the smallest fp32.
  std::vector<float> codes(128, 0.51f);
  codes[7] = 0.49f;
  expect_right(Floats32(std::move(codes)).w, std::vector<float>(64, 0x1p-149f));
}

// Rows that are not a multiple of 16, all their products below zero: what fills up the last block
// is no row.
TEST(Screen, WhatFillsUpTheLastBlockIsNoRow) {
  Threads threads(1);
  Weights m(3001, 64, 12);
  auto x = m.input();
  for (uint32_t r = 0; r < 3001; ++r) {
    for (uint32_t g = 0; g < 2; ++g) {
      for (uint32_t j = 0; j < 32; ++j) {
        uint8_t& c = m.at(r, g)[2 + j];
        const int code = std::abs(static_cast<int8_t>(c)) / 2 + 1;
        c = static_cast<uint8_t>(x[g * 32 + j] > 0 ? -code : code);
      }
    }
  }
  Screen screen(m.w, std::vector<float>(64, 1.0f), threads);
  EXPECT_EQ(screen.best(x.data()), static_cast<uint32_t>(m.best(x)));
  EXPECT_EQ(screen.best(x.data()), static_cast<uint32_t>(m.best(x))) << "rests";
}

// Where too many rows are left it rests, and tries again.
TEST(Screen, RestsWhereItDoesNotPay) {
  Threads threads(2);
  Weights m(3000, 64, 11);
  for (uint32_t r = 1; r < 3000; ++r) m.resemble(r, 0, 1);
  Screen screen(m.w, std::vector<float>(64, 1.0f), threads);
  auto x = m.input();
  EXPECT_EQ(screen.best(x.data()), static_cast<uint32_t>(m.best(x)));
  uint32_t rests = 0;
  while (rests < 1000 && !screen.best(x.data())) ++rests;
  EXPECT_EQ(rests, 64u);
}

}  // namespace
}  // namespace kv
