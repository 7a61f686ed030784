// Transform coding: what comes back, the same with every kernel set and cut, against a decoder made
// of TRANSFORM.md alone; damage; what does not fit.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>

#include "codec/transform.h"
#include "codec/transform_fit.h"
#include "proto/checksum.h"
#include "tests/support/codec_data.h"
#include "tests/support/transform_golden.h"

namespace kv {
namespace {

using codec_data::SplitMix64;

constexpr uint32_t kRowHeads = 3, kHeadDim = 16, kValues = kRowHeads * kHeadDim;
constexpr uint32_t kFirst = 200, kRows = 300;  // of most tests: across a multiple of 256

// Rows of values that go together, of very different spread, rotated by their positions.
std::vector<float> rows_of(uint32_t count, uint32_t first, const RotaryTurns* turns,
                           uint64_t seed) {
  SplitMix64 mix{99}, random{seed};
  std::vector<float> directions(kValues * kValues), rows(size_t{count} * kValues);
  for (float& d : directions) d = mix.gaussian();
  for (uint32_t r = 0; r < count; ++r) {
    float* row = &rows[size_t{r} * kValues];
    for (uint32_t j = 0; j < kValues; ++j) row[j] = static_cast<float>(j % 5);
    for (uint32_t c = 0; c < kValues; ++c) {
      const float x = random.gaussian() * std::exp2(4 - static_cast<float>(c) / 4);
      for (uint32_t j = 0; j < kValues; ++j) row[j] += x * directions[c * kValues + j];
    }
  }
  if (turns != nullptr) turns->turn(rows.data(), count, kValues, first, kRowHeads, kHeadDim, false);
  return rows;
}

std::shared_ptr<const TransformCoder> coder_of(const TransformSet& set, size_t transform,
                                               const Kernels* kernels = nullptr) {
  auto tables = TransformTables::create(std::make_shared<const TransformSet>(set));
  KV_CHECK(tables.ok());
  auto coder = TransformCoder::create(*tables, transform, kRowHeads, kHeadDim, kernels);
  KV_CHECK(coder.ok());
  return *coder;
}

std::vector<float> rows_for(const TransformSet& set, size_t transform, uint32_t count,
                            uint32_t first, uint64_t seed) {
  const uint16_t rotation = set.transforms[transform].rotation;
  if (rotation == kNoRotation) return rows_of(count, first, nullptr, seed);
  const RotaryTurns turns(set.rotations[rotation]);
  return rows_of(count, first, &turns, seed);
}

// Three transforms: all heads together, their halves turned; each head alone, a part of it turned
// in pairs; all together as they are.
TransformSet fitted(float step) {
  TransformSet set;
  set.tables = {{0, {1}}};
  for (uint32_t pairs : {kHeadDim / 2, kHeadDim / 4}) {
    set.rotations.push_back({pairs == kHeadDim / 2, {}});
    for (uint32_t i = 0; i < pairs; ++i) {
      set.rotations.back().step.push_back(static_cast<float>(std::pow(1e4, -1.0 * i / pairs)));
    }
  }
  for (uint16_t i = 0; i < 3; ++i) {
    const RotaryTurns turns(set.rotations[i % 2]);
    const RotaryTurns* used = i == 2 ? nullptr : &turns;
    RowStatistics statistics(kRowHeads, kHeadDim, used);
    statistics.add(rows_of(1000, 50, used, 7), 50);
    set.transforms.push_back(*statistics.transform(i == 1 ? kHeadDim : kValues));
    set.transforms[i].rotation = i == 2 ? kNoRotation : i;
    for (float& s : set.transforms[i].scale) s *= step;
  }
  TableFit fit;
  const TransformSet plain = set;
  for (size_t i = 0; i < 3; ++i) {
    fit.add(set.transforms[i], *coder_of(plain, i)->integers(rows_for(plain, i, 1000, 50, 7), 50),
            1000);
  }
  set.tables = fit.finish();
  KV_CHECK(validate(set).ok());
  return set;
}

const TransformSet& usual() {
  static const TransformSet set = fitted(0.5f);
  return set;
}

// ---- a decoder as the document has it: one state and one value at a time

class Oracle {
 public:
  Oracle(const TransformSet& set, size_t transform) : set_(set), t_(set.transforms[transform]) {}

  std::vector<std::vector<int>> integers(const std::vector<uint8_t>& stream, uint32_t rows) {
    at_ = stream.data();
    const uint8_t* escapes =
        at_ + 4 + 4 * size_t{std::min(rows, 32u)} + 2 * size_t{number<uint32_t>()};
    states_.resize(std::min(rows, 32u));
    for (uint32_t& s : states_) s = number<uint32_t>();
    std::vector<std::vector<int>> out(t_.mean.size(), std::vector<int>(rows));
    for (size_t c = 0; c < out.size(); ++c) {
      const uint32_t bits = t_.low_bits[c];
      std::vector<int> low(rows, 0);
      for (uint32_t r = 0; r < rows; ++r) out[c][r] = take(r, set_.tables[t_.table[c]]);
      for (uint32_t r = 0; bits > 0 && r < rows; ++r) low[r] = take(r, even(bits));
      for (uint32_t r = 0; r < rows; ++r) {
        out[c][r] = out[c][r] == -128 ? escaped(escapes) : out[c][r] * (1 << bits) + low[r];
      }
    }
    return out;
  }

  // Row r, not turned yet.
  std::vector<float> row(const std::vector<std::vector<int>>& integers, uint32_t r) const {
    std::vector<float> out(t_.mean);
    for (size_t first = 0; first < out.size(); first += t_.width) {
      for (size_t c = first; c < first + t_.width; ++c) {
        for (size_t j = 0; j < t_.width; ++j) {
          const float entry = t_.scale[c] * static_cast<float>(t_.basis[c * t_.width + j]);
          out[first + j] = std::fma(static_cast<float>(integers[c][r]), entry, out[first + j]);
        }
      }
    }
    return out;
  }

 private:
  template <typename T>
  T number() {
    T n;
    std::memcpy(&n, at_, sizeof(n));
    at_ += sizeof(n);
    return n;
  }
  static IntegerTable even(uint32_t bits) {
    return {0, std::vector<uint16_t>(size_t{1} << bits, static_cast<uint16_t>(4096 >> bits))};
  }
  int take(uint32_t row, const IntegerTable& table) {
    uint32_t& x = states_[row % 32];
    uint32_t start = 0;
    size_t i = 0;
    while (i < table.counts.size() && x % 4096 >= start + table.counts[i]) {
      start += table.counts[i++];
    }
    const bool known = i < table.counts.size();
    const uint32_t count = known ? table.counts[i] : 4096 - start;
    x = count * (x / 4096) + x % 4096 - start;
    if (x < 65536) x = x * 65536 + number<uint16_t>();
    return known ? table.first + static_cast<int>(i) : -128;
  }
  static int escaped(const uint8_t*& from) {
    uint32_t code = 0, shift = 0;
    for (;; shift += 7) {
      code |= (*from & 127u) << shift;
      if (*from++ < 128) break;
    }
    return code % 2 == 0 ? static_cast<int>(code / 2) : -static_cast<int>(code / 2) - 1;
  }

  const TransformSet& set_;
  const Transform& t_;
  const uint8_t* at_ = nullptr;
  std::vector<uint32_t> states_;
};

// ---- what comes back

std::vector<float> decoded(const TransformCoder& coder, std::span<const uint8_t> stream,
                           uint32_t count, uint32_t first, uint32_t begin, uint32_t end) {
  std::vector<float> out(size_t{end - begin} * kValues);
  const Status status = coder.decode(stream, count, first, begin, end, out);
  EXPECT_TRUE(status.ok()) << status.to_string();
  return out;
}

TEST(CodecTransform, ErrorIsThatOfTheStep) {
  for (size_t i = 0; i < 3; ++i) {
    const auto rows = rows_for(usual(), i, kRows, kFirst, 3);
    const auto coder = coder_of(usual(), i);
    const auto stream = coder->encode(rows, kFirst);
    ASSERT_TRUE(stream.has_value());
    const auto back = decoded(*coder, *stream, kRows, kFirst, 0, kRows);
    double error = 0;
    for (size_t v = 0; v < rows.size(); ++v) error += std::pow(double{rows[v]} - back[v], 2);
    error /= static_cast<double>(rows.size());
    EXPECT_GT(error, 0.9 * 0.25 / 12) << i;  // a uniform step of .5, in an orthogonal basis
    EXPECT_LT(error, 1.1 * 0.25 / 12) << i;
  }
}

// Rows of a mean spread of some ten steps a component: close to what their entropy asks for.
TEST(CodecTransform, BytesAreCloseToTheEntropy) {
  const auto coder = coder_of(usual(), 0);
  const auto rows = rows_for(usual(), 0, 4096, 0, 5);
  const auto stream = coder->encode(rows, 0);
  const auto integers = coder->integers(rows, 0);
  ASSERT_TRUE(stream && integers);
  double bits = 0;
  for (size_t c = 0; c < kValues; ++c) {
    std::map<int, int> seen;
    for (size_t r = 0; r < 4096; ++r) ++seen[(*integers)[c * 4096 + r]];
    for (auto [value, times] : seen) bits -= times * std::log2(times / 4096.0);
  }
  EXPECT_LT(static_cast<double>(stream->size()), 1.02 * bits / 8);
}

TEST(CodecTransform, IsWhatTheDocumentSays) {
  for (float step : {0.02f, 0.5f, 30.0f}) {  // with low bits and escapes, usual, nearly all zero
    const TransformSet set = step == 0.5f ? usual() : fitted(step);
    for (size_t i = 0; i < 3; ++i) {
      for (uint32_t rows : {1u, 31u, 33u, 100u}) {
        const auto values = rows_for(set, i, rows, kFirst, 11);
        const auto coder = coder_of(set, i);
        const auto stream = coder->encode(values, kFirst);
        ASSERT_TRUE(stream.has_value());
        Oracle oracle(set, i);
        const auto integers = oracle.integers(*stream, rows);
        const auto back = decoded(*coder, *stream, rows, kFirst, 0, rows);
        for (uint32_t r = 0; r < rows; ++r) {
          auto row = oracle.row(integers, r);
          const uint16_t rotation = set.transforms[i].rotation;
          if (rotation != kNoRotation) {
            RotaryTurns(set.rotations[rotation])
                .turn(row.data(), 1, kValues, kFirst + r, kRowHeads, kHeadDim, false);
          }
          ASSERT_EQ(std::memcmp(row.data(), &back[size_t{r} * kValues], 4 * kValues), 0)
              << step << " " << i << " row " << r << " of " << rows;
        }
      }
    }
  }
}

TEST(CodecTransform, EveryKernelSetAndCutGivesTheSame) {
  for (size_t i = 0; i < 3; ++i) {
    const auto rows = rows_for(usual(), i, kRows, kFirst, 4);
    const auto stream = coder_of(usual(), i, &scalar_kernels())->encode(rows, kFirst);
    ASSERT_TRUE(stream.has_value());
    const auto whole =
        decoded(*coder_of(usual(), i, &scalar_kernels()), *stream, kRows, kFirst, 0, kRows);
    for (const Kernels* kernels : codec_data::all_kernels()) {
      const auto coder = coder_of(usual(), i, kernels);
      EXPECT_EQ(coder->encode(rows, kFirst), stream) << kernels->name;
      for (auto [a, b] : {std::pair(0u, kRows), {0u, 1u}, {7u, 90u}, {255u, 257u}, {299u, kRows}}) {
        const auto some = decoded(*coder, *stream, kRows, kFirst, a, b);
        EXPECT_EQ(std::memcmp(some.data(), &whole[size_t{a} * kValues], 4 * some.size()), 0)
            << kernels->name << " " << a;
      }
      // Coded in two streams, cut anywhere: the same rows.
      for (uint32_t cut : {1u, 40u, 128u, 298u}) {
        const std::span all(rows);
        const auto head = coder->encode(all.first(size_t{cut} * kValues), kFirst);
        const auto tail = coder->encode(all.subspan(size_t{cut} * kValues), kFirst + cut);
        ASSERT_TRUE(head && tail);
        auto joined = decoded(*coder, *head, cut, kFirst, 0, cut);
        const auto rest = decoded(*coder, *tail, kRows - cut, kFirst + cut, 0, kRows - cut);
        joined.insert(joined.end(), rest.begin(), rest.end());
        EXPECT_EQ(std::memcmp(joined.data(), whole.data(), 4 * whole.size()), 0)
            << kernels->name << " " << cut;
      }
    }
  }
}

// Rows as wide as models have them, whose products run in panels and beside the entropy decoder:
// with low bits, escapes and components that are nearly always zero.
TEST(CodecTransform, WideRowsAreWhatTheDocumentSaysWithEveryKernelSetAndCut) {
  constexpr uint32_t kCount = 70;
  for (const auto& shape : {std::array{3u, 32u, 96u}, {2u, 64u, 64u}, {1u, 160u, 160u}}) {
    const uint32_t heads = shape[0], dim = shape[1], width = shape[2];
    const size_t n = size_t{heads} * dim;
    SplitMix64 random{heads};
    Transform t;
    t.width = width;
    t.scale.assign(n, 1.0f / 127);
    t.table.resize(n);
    t.low_bits.resize(n);
    for (size_t i = 0; i < n; ++i) t.mean.push_back(random.gaussian());
    for (size_t i = 0; i < n * width; ++i) {
      t.basis.push_back(static_cast<int8_t>(
          i / width % width == i % width ? 127 : static_cast<int>(random.below(9)) - 4));
    }
    std::vector<float> rows(kCount * n);
    for (size_t i = 0; i < rows.size(); ++i) {
      rows[i] = random.gaussian() * std::exp2(6 - 9 * static_cast<float>(i % width) / width);
    }
    TransformSet set{{{0, {1}}}, {}, {t}};
    auto coder = [&](const Kernels* kernels) {
      const auto tables = *TransformTables::create(std::make_shared<const TransformSet>(set));
      return *TransformCoder::create(tables, 0, heads, dim, kernels);
    };
    TableFit fit;
    fit.add(set.transforms[0], *coder(nullptr)->integers(rows, 0), kCount);
    set.tables = fit.finish();
    const auto stream = coder(&scalar_kernels())->encode(rows, kFirst);
    ASSERT_TRUE(stream.has_value());
    Oracle oracle(set, 0);
    const auto integers = oracle.integers(*stream, kCount);
    std::vector<float> expected;
    for (uint32_t r = 0; r < kCount; ++r) {
      for (float x : oracle.row(integers, r)) expected.push_back(x + 0.0f);
    }
    for (const Kernels* kernels : codec_data::all_kernels()) {
      const auto made = coder(kernels);
      EXPECT_EQ(made->encode(rows, kFirst), stream) << kernels->name;
      for (auto [a, b] : {std::pair(0u, kCount), {0u, 1u}, {3u, 60u}, {67u, kCount}}) {
        std::vector<float> some((b - a) * n);
        ASSERT_TRUE(made->decode(*stream, kCount, kFirst, a, b, some).ok());
        EXPECT_EQ(std::memcmp(some.data(), &expected[a * n], 4 * some.size()), 0)
            << kernels->name << " " << n << " from " << a;
      }
    }
  }
}

TEST(CodecTransform, WhatDoesNotFitIsNotCoded) {
  const auto coder = coder_of(usual(), 0);
  for (float bad : {std::numeric_limits<float>::infinity(), -1e30f, 1e7f,
                    std::numeric_limits<float>::quiet_NaN()}) {
    auto rows = rows_for(usual(), 0, 70, 0, 6);
    rows[65 * kValues + 5] = bad;
    EXPECT_FALSE(coder->encode(rows, 0).has_value()) << bad;
  }
  EXPECT_FALSE(coder->encode({}, 0).has_value());
  TransformSet flat = usual();  // a basis that has no inverse
  std::ranges::fill(flat.transforms[0].basis, int8_t{1});
  EXPECT_FALSE(coder_of(flat, 0)->encode(rows_for(usual(), 0, 70, 0, 6), 0).has_value());
  // An outlier that does fit costs bytes, not quality.
  auto rows = rows_for(usual(), 0, 70, 0, 6);
  for (uint32_t j = 0; j < kValues; ++j) rows[30 * kValues + j] += 3000;
  const auto stream = coder->encode(rows, 0);
  ASSERT_TRUE(stream.has_value());
  const auto back = decoded(*coder, *stream, 70, 0, 30, 31);
  for (uint32_t j = 0; j < kValues; ++j) EXPECT_NEAR(back[j], rows[30 * kValues + j], 2);
}

TEST(CodecTransform, TurnsAreThoseOfSineAndCosine) {
  Rotation rotation{true, {1.0f, 0.31f, 1e-4f, 8.0f, 0.0f}};
  const RotaryTurns turns(rotation);
  for (uint32_t position : {0u, 1u, 255u, 256u, 4097u, 1u << 20, (1u << 22) - 1}) {
    std::vector<float> row = {1, 1, 1, 1, 1, 0, 0, 0, 0, 0};
    turns.turn(row.data(), 1, 10, position, 1, 10, false);
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_NEAR(row[i], std::cos(double{rotation.step[i]} * position), 1e-6) << position;
      EXPECT_NEAR(row[5 + i], std::sin(double{rotation.step[i]} * position), 1e-6) << position;
    }
    turns.turn(row.data(), 1, 10, position, 1, 10, true);
    for (size_t i = 0; i < 10; ++i) EXPECT_NEAR(row[i], i < 5 ? 1 : 0, 1e-6);
  }
}

// ---- damage

TEST(CodecTransform, DamageIsNamedCorruptionAndNeverACrash) {
  SplitMix64 random{8};
  for (const Kernels* kernels : codec_data::all_kernels()) {
    const TransformSet set = fitted(0.02f);
    const auto coder = coder_of(set, 0, kernels);
    const auto stream = *coder->encode(rows_for(set, 0, 90, 0, 9), 0);
    std::vector<float> out(size_t{90} * kValues);
    auto code = [&](std::span<const uint8_t> bytes, uint32_t count) {
      std::vector<uint8_t> exact(bytes.begin(), bytes.end());  // what is behind them is seen
      return coder->decode(exact, count, 0, 0, 0, std::span(out).first(0)).code();
    };
    EXPECT_EQ(code(stream, 90), StatusCode::ok);
    for (uint32_t count : {0u, 1u, 33u, 89u, 91u, 128u, 4097u}) {
      EXPECT_EQ(code(stream, count), StatusCode::corruption) << count;
    }
    for (size_t n = 0; n < stream.size(); n += n < 200 ? 1 : 37) {
      EXPECT_EQ(code(std::span(stream).first(n), 90), StatusCode::corruption) << n;
    }
    auto longer = stream;
    longer.push_back(0);
    EXPECT_EQ(code(longer, 90), StatusCode::corruption);
    int seen = 0;
    constexpr int kFlips = 300;
    for (int i = 0; i < kFlips; ++i) {
      auto other = stream;
      other[random.below(static_cast<uint32_t>(other.size()))] ^=
          static_cast<uint8_t>(1u << random.below(8));
      seen += code(other, 90) == StatusCode::corruption ? 1 : 0;
    }
    EXPECT_GT(seen, kFlips / 2);  // those in an escape or in the very last words give other values
    EXPECT_EQ(coder->decode(stream, 90, 0, 3, 2, out).code(), StatusCode::invalid_argument);
    EXPECT_EQ(coder->decode(stream, 90, 0, 0, 91, out).code(), StatusCode::invalid_argument);
    EXPECT_EQ(coder->decode(stream, 90, 0, 0, 89, out).code(), StatusCode::invalid_argument);
  }
}

// ---- sets

TEST(CodecTransform, SetsComeBackAndFaultsAreNamed) {
  ByteWriter out;
  encode(usual(), out);
  ByteReader in(out.span());
  const auto back = decode_transforms(in);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(*back, usual());
  for (size_t n = 0; n < out.size(); n += 101) {
    ByteReader part(out.span().first(n));
    EXPECT_EQ(decode_transforms(part).status().code(), StatusCode::corruption) << n;
  }
  auto fault = [](auto change) {
    TransformSet set = usual();
    change(set);
    return validate(set).to_string();
  };
  auto says = [&](const std::string& text, auto change) {
    EXPECT_NE(fault(change).find(text), std::string::npos) << fault(change);
  };
  says("below 4096", [](auto& s) { s.tables[3].counts[0] = 4096; });
  says("a count is 0", [](auto& s) { s.tables[3].counts[0] = 0; });
  says("have 0 among them", [](auto& s) { s.tables[3].first = 1; });
  says("no pairs", [](auto& s) { s.rotations[0].step.clear(); });
  says("not in 0", [](auto& s) { s.rotations[0].step[0] = 9; });
  says("transform 1: basis", [](auto& s) { s.transforms[1].basis.pop_back(); });
  says("transform 2: scale", [](auto& s) { s.transforms[2].scale.push_back(1); });
  says("out of range", [](auto& s) { s.transforms[0].scale[0] = 0; });
  says("out of range", [](auto& s) { s.transforms[0].mean[0] = NAN; });
  says("has no table", [](auto& s) { s.transforms[0].table[0] = 200; });
  says("7 low bits", [](auto& s) { s.transforms[0].low_bits[0] = 8; });
  says("rotation", [](auto& s) { s.transforms[0].rotation = 5; });
  says("width", [](auto& s) { s.transforms[0].width = 0; });
  EXPECT_FALSE(validate_shape(usual(), 3, kRowHeads, kHeadDim).ok());
  EXPECT_FALSE(validate_shape(usual(), 0, kRowHeads + 1, kHeadDim).ok());
  EXPECT_FALSE(
      validate_shape(usual(), 1, 4 * kRowHeads, kHeadDim / 4).ok());  // a pair beyond the head
}

// ---- golden bytes: codec/TRANSFORM.md, "Golden stream"

TEST(CodecTransform, GoldenStream) {
  auto tables =
      TransformTables::create(std::make_shared<const TransformSet>(testing::golden_transforms()));
  ASSERT_TRUE(tables.ok()) << tables.status().to_string();
  const std::vector<float> rows = testing::golden_rows();
  for (const Kernels* kernels : codec_data::all_kernels()) {
    const auto coder = *TransformCoder::create(*tables, 0, 1, 4, kernels);
    const auto stream = coder->encode(rows, testing::kGoldenFirst);
    ASSERT_TRUE(stream.has_value());
    std::vector<float> out(rows.size());
    ASSERT_TRUE(coder
                    ->decode(*stream, testing::kGoldenRows, testing::kGoldenFirst, 0,
                             testing::kGoldenRows, out)
                    .ok());
    const std::span bytes(reinterpret_cast<const uint8_t*>(out.data()), 4 * out.size());
    EXPECT_EQ(stream->size(), 251u);
    EXPECT_EQ(crc32c(*stream), 0x189e44ebu) << kernels->name;
    EXPECT_EQ(crc32c(bytes), 0x5aca0fe5u) << kernels->name;
  }
}

}  // namespace
}  // namespace kv
