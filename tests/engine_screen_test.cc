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
