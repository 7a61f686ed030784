// Every kernel set that this machine has gives the bits of the scalar one, on ordinary and on
// hostile input.
#include <gtest/gtest.h>

#include <cstdlib>

#include "codec/packing.h"
#include "codec/turboquant.h"
#include "tests/support/codec_data.h"

namespace kv {
namespace {

using namespace codec_data;

template <typename T>
void expect_same_bits(const std::vector<T>& a, const std::vector<T>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(T)), 0) << what;
}

class CodecKernels : public testing::TestWithParam<std::tuple<const Kernels*, uint32_t>> {
 protected:
  const Kernels& scalar = scalar_kernels();
  const Kernels& set = *std::get<0>(GetParam());
  const uint32_t dim = std::get<1>(GetParam());
};

// Of every grid value: the compares of the specification.
TEST(CodecSteps, GiveTheIndexOfEveryGridValue) {
  for (uint8_t bits : {1, 2, 3, 4}) {
    const HalfCodebook& book = half_codebook(bits);
    const IndexSteps steps = index_steps(bits);
    for (int32_t u = -kGridMax; u <= kGridMax; ++u) {
      int32_t cell = 0;
      for (int k = 0; k + 1 < book.cells; ++k) cell += std::abs(u) > book.threshold[k];
      const auto word = static_cast<uint16_t>(u);
      const auto found = static_cast<uint16_t>(word + steps[word >> kStepBits]) >> kStepBits;
      ASSERT_EQ(found, u < 0 ? book.cells - 1 - cell : book.cells + cell) << u;
    }
  }
}

TEST_P(CodecKernels, Encode) {
  const auto signs = rotation_signs(42, dim);
  SplitMix64 random{dim};
  for (uint8_t bits : {1, 2, 3, 4, 8}) {
    for (int round = 0; round < 400; ++round) {
      std::vector<float> x(dim);
      const float scale = static_cast<float>(std::exp2(random.uniform() * 100 - 50));
      for (float& v : x) v = random.gaussian() * scale;
      if (round % 4 == 1) x[random.below(dim)] = 1e4f * scale;
      if (round % 4 == 2) std::fill(x.begin(), x.end(), scale);
      if (round == 3) std::fill(x.begin(), x.end(), 0.0f);
      if (round == 7) x[random.below(dim)] = NAN;
      if (round == 11) x[random.below(dim)] = INFINITY;
      if (round == 15) std::fill(x.begin(), x.end(), 1e30f);
      auto a = x, b = x;
      std::vector<uint8_t> codes_a(code_bytes(dim, bits), 0xAA), codes_b = codes_a;
      uint16_t scale_a = 0, scale_b = 0;
      auto state_a = scalar.encode(a.data(), dim, signs.data(), bits, codes_a.data(), &scale_a);
      auto state_b = set.encode(b.data(), dim, signs.data(), bits, codes_b.data(), &scale_b);
      ASSERT_EQ(state_a, state_b) << round;
      if (round == 7 || round == 11) {
        ASSERT_EQ(state_a, VectorState::not_finite);
      }
      if (round == 15) {
        ASSERT_EQ(state_a, VectorState::scale_overflow);
      }
      if (state_a != VectorState::ok) continue;
      ASSERT_EQ(scale_a, scale_b) << round;
      ASSERT_EQ(codes_a, codes_b) << "bits " << int{bits} << " round " << round;
    }
  }
}

// Where a multiple of a vector takes its scale to the next fp16 value, the last bit of the norm
// decides: there its order of summation shows.
TEST_P(CodecKernels, EncodeSumsTheNormInOneOrder) {
  const auto signs = rotation_signs(42, dim);
  for (uint64_t round = 0; round < 4; ++round) {
    const auto x = gaussians(dim, 100 + round);
    auto scale_of = [&](const Kernels& kernels, float factor) {
      auto multiple = x;
      for (float& v : multiple) v *= factor;
      std::vector<uint8_t> codes(code_bytes(dim, 4));
      uint16_t scale = 0;
      kernels.encode(multiple.data(), dim, signs.data(), 4, codes.data(), &scale);
      return scale;
    };
    float below = 1, above = 1.5f;
    const uint16_t first = scale_of(scalar, below);
    ASSERT_NE(scale_of(scalar, above), first);
    for (float middle = 1.25f; middle != below && middle != above;
         middle = below + (above - below) / 2) {
      (scale_of(scalar, middle) == first ? below : above) = middle;
    }
    for (int step = -8; step <= 8; ++step) {
      const float factor = below + static_cast<float>(step) * 0x1p-23f;
      EXPECT_EQ(scale_of(scalar, factor), scale_of(set, factor)) << round << " " << step;
    }
  }
}

TEST_P(CodecKernels, UnpackEveryByteAndLayout) {
  SplitMix64 random{dim * 3};
  for (uint8_t bits : {1, 2, 3, 4, 8}) {
    const size_t rows = 37, bytes = code_bytes(dim, bits);
    std::vector<uint8_t> codes(rows * bytes);
    for (auto& c : codes) c = static_cast<uint8_t>(random.next());
    std::vector<int16_t> a(rows * dim), b(rows * dim);
    scalar.unpack(codes.data(), rows, dim, bits, a.data());
    set.unpack(codes.data(), rows, dim, bits, b.data());
    EXPECT_EQ(a, b) << int{bits};
    if (bits == 8) continue;
    std::vector<uint8_t> index(dim + kIndexSlack), packed(bytes);
    for (uint32_t j = 0; j < dim; ++j) {
      index[j] = static_cast<uint8_t>(index_at(codes.data(), dim, bits, j));
      EXPECT_EQ(a[j], code_value(bits, index[j]));
    }
    pack_indices(index.data(), dim, bits, packed.data());
    for (uint32_t j = 0; j < dim; ++j) {
      EXPECT_EQ(index_at(packed.data(), dim, bits, j), index[j]) << int{bits};
    }
    if (dim % 8 != 0) continue;  // else no bit is spare
    EXPECT_TRUE(std::equal(packed.begin(), packed.end(), codes.begin())) << int{bits};
  }
}

TEST_P(CodecKernels, RotateAndDecode) {
  const auto signs = rotation_signs(1, dim);
  auto x = gaussians(dim, 5, 3.7f), y = x;
  scalar.rotate(x.data(), dim, signs.data());
  set.rotate(y.data(), dim, signs.data());
  expect_same_bits(x, y, "rotate");
  scalar.unrotate(x.data(), dim, signs.data());
  set.unrotate(y.data(), dim, signs.data());
  expect_same_bits(x, y, "unrotate");
  std::vector<float> zeros(dim), signed_zeros = zeros;  // of either sign from the signs on
  scalar.rotate(zeros.data(), dim, signs.data());
  set.rotate(signed_zeros.data(), dim, signs.data());
  expect_same_bits(zeros, signed_zeros, "rotate zeros");
  const auto original = gaussians(dim, 5, 3.7f);
  for (uint32_t j = 0; j < dim; ++j) {
    EXPECT_NEAR(x[j] / (rotation_norm(dim) * rotation_norm(dim)), original[j], 1e-4);
  }
  std::vector<int16_t> values(dim);
  SplitMix64 random{9};
  for (auto& v : values) v = static_cast<int16_t>(random.below(2799)) - 1399;
  scalar.decode(values.data(), dim, signs.data(), 0.0123f, x.data());
  set.decode(values.data(), dim, signs.data(), 0.0123f, y.data());
  expect_same_bits(x, y, "decode");
}

TEST_P(CodecKernels, ScoresAndSums) {
  SplitMix64 random{dim + 11};
  const size_t rows = 29;
  std::vector<float> s(rows), t(rows);
  std::vector<int32_t> dots(rows);
  for (auto& d : dots) d = static_cast<int32_t>(random.next());
  std::vector<uint8_t> scales(2 * rows);
  for (auto& x : scales) x = static_cast<uint8_t>(random.below(0x70));
  scalar.score_codes(dots.data(), scales.data(), rows, 1e-4f, 0.7f, s.data());
  set.score_codes(dots.data(), scales.data(), rows, 1e-4f, 0.7f, t.data());
  expect_same_bits(s, t, "score_codes");

  const uint32_t padded = (dim + 7) / 8 * 8;
  for (uint32_t width : {padded, padded + 8, padded + 40}) {
    auto qf = gaussians(width, 1), kf = gaussians(rows * width, 2), w = gaussians(rows, 3);
    scalar.dot_exact(qf.data(), kf.data(), rows, width, s.data());
    set.dot_exact(qf.data(), kf.data(), rows, width, t.data());
    expect_same_bits(s, t, "dot_exact");
    auto x = qf, y = qf;
    scalar.add_exact(w.data(), kf.data(), rows, width, x.data());
    set.add_exact(w.data(), kf.data(), rows, width, y.data());
    expect_same_bits(x, y, "add_exact");
    scalar.merge(x.data(), 0.3f, kf.data(), 1.7f, width);
    set.merge(y.data(), 0.3f, kf.data(), 1.7f, width);
    expect_same_bits(x, y, "merge");
    scalar.center(x.data(), qf.data(), kf.data(), width);
    set.center(y.data(), qf.data(), kf.data(), width);
    scalar.uncenter(x.data(), qf.data(), kf.data() + 3, width);
    set.uncenter(y.data(), qf.data(), kf.data() + 3, width);
    expect_same_bits(x, y, "center and uncenter");
  }
}

TEST_P(CodecKernels, ProductsAndSumsOfCodes) {
  SplitMix64 random{dim + 12};
  for (uint8_t bits : {1, 2, 3, 4, 8}) {
    std::vector<uint8_t> codes(kScoreRows * code_bytes(dim, bits) + kCodeSlack);
    for (auto& c : codes) c = static_cast<uint8_t>(random.next());
    for (size_t count = 1; count <= kScoreGroup; ++count) {
      SCOPED_TRACE("bits " + std::to_string(bits) + " queries " + std::to_string(count));
      const size_t width = query_width(dim);
      std::vector<int16_t> q(dim), a(count * width), b(count * width);
      for (size_t i = 0; i < count; ++i) {
        for (auto& v : q) v = static_cast<int16_t>(static_cast<int>(random.below(4095)) - 2047);
        scalar.order_query(q.data(), dim, bits, a.data() + i * width);
        set.order_query(q.data(), dim, bits, b.data() + i * width);
      }
      for (size_t rows : {size_t{1}, size_t{29}, size_t{kScoreRows}}) {
        std::vector<int32_t> x(count * kScoreRows, 7), y = x;
        scalar.dot_codes(a.data(), count, codes.data(), rows, dim, bits, x.data());
        set.dot_codes(b.data(), count, codes.data(), rows, dim, bits, y.data());
        for (size_t i = 0; i < count; ++i) {
          const auto from = static_cast<std::ptrdiff_t>(i * kScoreRows);
          const auto to = from + static_cast<std::ptrdiff_t>(rows);
          ASSERT_TRUE(std::equal(x.begin() + from, x.begin() + to, y.begin() + from));
        }
      }
      if (count > kSumGroup) continue;
      std::vector<int16_t> weights(count * kTileRows);
      for (auto& w : weights) w = static_cast<int16_t>(random.below(32768));
      const size_t stride = dim + 5;
      auto factors = gaussians(count, 3), x = gaussians(count * stride, 4), y = x;
      scalar.add_codes(weights.data(), factors.data(), count, codes.data(), dim, bits, x.data(),
                       stride);
      set.add_codes(weights.data(), factors.data(), count, codes.data(), dim, bits, y.data(),
                    stride);
      expect_same_bits(x, y, "add_codes");
    }
  }
}

TEST_P(CodecKernels, SoftmaxAndWeights) {
  for (float spread : {0.01f, 3.0f, 60.0f}) {
    auto x = gaussians(256, dim, spread), y = x;
    x[17] = y[17] = -INFINITY;
    const float top = scalar.largest(x.data(), 256);
    ASSERT_EQ(top, set.largest(x.data(), 256));
    const auto scores = x;
    const float sum_x = scalar.exp_weights(x.data(), 256, top);
    const float sum_y = set.exp_weights(y.data(), 256, top);
    expect_same_bits(x, y, "exp_weights");
    EXPECT_EQ(sum_x, sum_y);
    EXPECT_EQ(x[17], 0);
    for (size_t i = 0; i < 256; ++i) {
      const float below_top = scores[i] - top;
      EXPECT_NEAR(x[i], std::exp(double{below_top}), 2e-7 * x[i] + 1e-37) << below_top;
    }
    auto scales = gaussians(kTileRows, 6);
    for (float& s : scales) s = std::fabs(s);
    std::vector<int16_t> a(kTileRows), b(kTileRows);
    for (uint32_t tile = 0; tile < 256; tile += kTileRows) {
      EXPECT_EQ(scalar.quantize_weights(x.data() + tile, scales.data(), a.data()),
                set.quantize_weights(y.data() + tile, scales.data(), b.data()));
      EXPECT_EQ(a, b);
    }
  }
  std::vector<float> tiny(kTileRows, 1e-33f), one(kTileRows, 1.0f);
  std::vector<int16_t> out(kTileRows, 5);
  for (const Kernels* kernels : all_kernels()) {
    EXPECT_EQ(kernels->quantize_weights(tiny.data(), one.data(), out.data()), 0);
    EXPECT_EQ(out, std::vector<int16_t>(kTileRows, 0));
  }
}

// Every set that this processor has, against the scalar one; that one itself where it is alone.
std::vector<const Kernels*> compared_kernels() {
  auto sets = available_kernels();
  if (sets.size() > 1) std::erase(sets, &scalar_kernels());
  return sets;
}

INSTANTIATE_TEST_SUITE_P(All, CodecKernels,
                         testing::Combine(testing::ValuesIn(compared_kernels()),
                                          testing::ValuesIn(kHeadDims)),
                         [](const auto& of) {
                           return std::get<0>(of.param)->name + std::string("_d") +
                                  std::to_string(std::get<1>(of.param));
                         });

TEST(CodecHalf, AllPatternsBothWays) {
  std::vector<uint8_t> in(2 * 65536);
  for (uint32_t h = 0; h < 65536; ++h) {
    auto v = static_cast<uint16_t>(h);
    std::memcpy(&in[2 * h], &v, 2);
  }
  for (const Kernels* kernels : all_kernels()) {
    std::vector<float> out(65536), bf(65536);
    kernels->f16_to_f32(in.data(), out.data(), 65536);
    kernels->bf16_to_f32(in.data(), bf.data(), 65536);
    for (uint32_t h = 0; h < 65536; ++h) {
      const float expected = half_to_float(static_cast<uint16_t>(h));
      EXPECT_EQ(std::bit_cast<uint32_t>(out[h]), std::bit_cast<uint32_t>(expected)) << h;
      if (std::isnan(expected)) continue;
      EXPECT_EQ(float_to_half(expected), h);
      EXPECT_EQ(bf[h] == bf16_to_float(static_cast<uint16_t>(h)), !std::isnan(bf[h]));
    }
  }
}

TEST(CodecHalf, RoundingAndClamping) {
  SplitMix64 random{12};
  std::vector<float> in;
  for (int i = 0; i < 4000; ++i) {
    in.push_back(static_cast<float>(random.gaussian() * std::exp2(random.uniform() * 60 - 40)));
  }
  for (float x :
       {65504.0f, 65519.0f, 65520.0f, 1e9f, -1e9f, 0x1p-25f, 0x1.8p-25f, -0.0f, 2049.0f}) {
    in.push_back(x);
  }
  std::vector<uint8_t> a(2 * in.size()), b(a.size());
  scalar_kernels().f32_to_f16(in.data(), a.data(), in.size());
  for (const Kernels* kernels : all_kernels()) {
    kernels->f32_to_f16(in.data(), b.data(), in.size());
    EXPECT_EQ(a, b) << kernels->name;
  }
  for (size_t i = 0; i < in.size(); ++i) {
    uint16_t h;
    std::memcpy(&h, &a[2 * i], 2);
    const double back = half_to_float(h),
                 ulp = std::max(std::fabs(double{in[i]}) * 0x1p-11, 0x1p-25);
    if (std::fabs(in[i]) < 65504) {
      EXPECT_LE(std::fabs(back - in[i]), ulp) << in[i];
    } else {
      EXPECT_EQ(std::fabs(back), 65504) << in[i];
    }
  }
}

TEST(CodecDispatch, EnvironmentNamesTheKernels) {
  for (const Kernels* kernels : all_kernels()) {
    std::printf("kernels of this machine, all exercised: %s\n", kernels->name);
    setenv("KV_KERNELS", kernels->name, 1);
    ASSERT_TRUE(select_kernels().ok());
    EXPECT_EQ(*select_kernels(), kernels);
  }
  setenv("KV_KERNELS", "scalar", 1);
  ASSERT_TRUE(select_kernels().ok());
  EXPECT_STREQ((*select_kernels())->name, "scalar");
  setenv("KV_KERNELS", neon_kernels() == nullptr ? "neon" : "avx2", 1);
  EXPECT_EQ(select_kernels().status().code(), StatusCode::unsupported);
  setenv("KV_KERNELS", "sse9", 1);
  EXPECT_EQ(select_kernels().status().code(), StatusCode::invalid_argument);
  unsetenv("KV_KERNELS");
  ASSERT_TRUE(select_kernels().ok());
}

}  // namespace
}  // namespace kv
