// Attention on stored rows against a double-precision softmax over the decoded planes.
//
// Tolerance: rotated queries are rounded to about 1/6000 of their standard deviation or finer,
// which moves a logit by 1e-4 of the logits' spread (code noise: 1e-1 at 4 bit, 6e-3 at 8 bit), and
// weights to 1/32767 of their tile's largest. With logits of spread up to 5 that is 5e-4 of the
// output.
#include <gtest/gtest.h>

#include "codec/attention.h"
#include "tests/support/codec_data.h"

namespace kv {
namespace {

using namespace codec_data;

struct Case {
  uint32_t heads = 2, k_dim = 64, v_dim = 64, rows = 700;
  uint8_t k_bits = 4, v_bits = 4;
  uint32_t group = 3;
  uint64_t seed = 1;
  uint32_t coded_rows = 512;  // whole blocks; the rest is the tail
  uint32_t exact_first = 0;   // of them, so many from the first on stay exact
  bool mean_and_gain = true;
};

struct Stored {
  std::shared_ptr<const Codec> codec;
  Plane k, v;                         // coded prefix, exact tail
  std::vector<float> k_rows, v_rows;  // decoded, (rows, heads, dim)
  std::vector<float> queries;         // (group, k_dim)
};

Profile profile_of(const Case& c, const ModelSpec& model) {
  CodingSettings settings;
  settings.k_bits = c.k_bits;
  settings.v_bits = c.v_bits;
  Profile profile = *plain_profile(model, settings);
  if (c.mean_and_gain) {
    SplitMix64 random{c.seed + 50};
    auto& part = profile.parts[0][0];
    part.key_mean = gaussians(size_t{c.heads} * c.k_dim, c.seed + 51, 2);
    for (size_t i = 0; i < part.key_mean.size(); ++i) {
      part.key_gain.push_back(static_cast<float>(std::exp2(random.uniform() * 2 - 1)));
    }
  }
  return profile;
}

Plane stored_plane(const Codec& codec, const Case& c, Side side, uint32_t dim, uint64_t seed) {
  auto values = gaussians(size_t{c.rows} * c.heads * dim, seed);
  Plane exact = plane_of(side, c.heads, dim, 0, values);
  if (side == Side::k && c.mean_and_gain) {
    auto shifted = values;
    const auto& mean = codec.profile().coding(0, 0).key_mean;
    for (size_t i = 0; i < shifted.size(); ++i) shifted[i] += mean[i % mean.size()];
    exact = plane_of(side, c.heads, dim, 0, shifted);
  }
  auto first = codec.raw(*slice_rows(exact, 0, c.exact_first));
  auto head = codec.encode(*slice_rows(exact, c.exact_first, c.coded_rows));
  auto tail = codec.raw(*slice_rows(exact, c.coded_rows, c.rows));
  KV_CHECK(first.ok() && head.ok() && tail.ok());
  auto joined = c.exact_first == 0 ? join_rows({*head, *tail}) : join_rows({*first, *head, *tail});
  KV_CHECK(joined.ok());
  return *joined;
}

Stored store(const Case& c, const Kernels* kernels = nullptr) {
  auto model = model_of(c.heads, c.k_dim, c.v_dim);
  Stored s;
  s.codec = codec_of(model, profile_of(c, model), kernels);
  s.k = stored_plane(*s.codec, c, Side::k, c.k_dim, c.seed + 1);
  s.v = stored_plane(*s.codec, c, Side::v, c.v_dim, c.seed + 2);
  s.k_rows = values_of(*s.codec, s.k);
  s.v_rows = values_of(*s.codec, s.v);
  s.queries = gaussians(size_t{c.group} * c.k_dim, c.seed + 3, 2);
  return s;
}

std::vector<double> oracle(const Case& c, const Stored& s, uint32_t head, uint32_t query,
                           const RowLimit& limit) {
  const double scale = 1 / std::sqrt(static_cast<double>(c.k_dim));
  std::vector<double> score(c.rows, -INFINITY), out(c.v_dim, 0.0);
  double top = -INFINITY, sum = 0;
  for (uint32_t r = 0; r < c.rows; ++r) {
    if (!(r < limit.end && (r >= limit.first || r < limit.keep))) continue;
    double dot = 0;
    for (uint32_t j = 0; j < c.k_dim; ++j) {
      dot += double{s.queries[size_t{query} * c.k_dim + j]} *
             s.k_rows[(size_t{r} * c.heads + head) * c.k_dim + j];
    }
    score[r] = dot * scale;
    top = std::max(top, score[r]);
  }
  for (uint32_t r = 0; r < c.rows; ++r) {
    if (score[r] == -INFINITY) continue;
    const double w = std::exp(score[r] - top);
    sum += w;
    for (uint32_t j = 0; j < c.v_dim; ++j) {
      out[j] += w * s.v_rows[(size_t{r} * c.heads + head) * c.v_dim + j];
    }
  }
  for (double& x : out) x = sum == 0 ? 0 : x / sum;
  return out;
}

std::vector<float> run(const Case& c, const Stored& s, const AttentionRows& rows, uint32_t head,
                       std::span<const RowLimit> limits = {}) {
  PreparedQueries queries;
  AttentionScratch scratch;
  const float scale = 1 / std::sqrt(static_cast<float>(c.k_dim));
  queries.prepare(*s.codec, 0, 0, head, s.queries, scale, limits);
  std::vector<float> out(size_t{c.group} * c.v_dim, 77.0f);
  attend(queries, rows, scratch, out);
  return out;
}

AttentionRows whole(const Stored& s) {
  AttentionRows rows(s.codec, 0, 0);
  auto status = rows.add(s.k, s.v, 0, s.k.end_row());
  KV_CHECK(status.ok());
  return rows;
}

void expect_close(const Case& c, const Stored& s, uint32_t head, const std::vector<float>& out,
                  std::span<const RowLimit> limits = {}) {
  for (uint32_t i = 0; i < c.group; ++i) {
    const auto expected = oracle(c, s, head, i, limits.empty() ? RowLimit{} : limits[i]);
    double error = 0, energy = 1e-12;
    for (uint32_t j = 0; j < c.v_dim; ++j) {
      const double e = out[size_t{i} * c.v_dim + j] - expected[j];
      error += e * e;
      energy += expected[j] * expected[j];
    }
    EXPECT_LT(std::sqrt(error / energy), 5e-4) << "query " << i << " head " << head;
  }
}

class CodecAttention : public testing::TestWithParam<std::tuple<uint32_t, uint8_t, uint8_t>> {};

TEST_P(CodecAttention, AgreesWithSoftmaxOverDecodedRows) {
  const auto [dim, k_bits, v_bits] = GetParam();
  for (uint32_t group : {1u, 3u, 4u, 8u}) {
    Case c;
    c.k_dim = c.v_dim = dim;
    c.k_bits = k_bits;
    c.v_bits = v_bits;
    c.group = group;
    c.rows = 420;
    c.coded_rows = 320;
    c.seed = dim + group * 1000;
    const Stored s = store(c);
    const AttentionRows rows = whole(s);
    for (uint32_t head = 0; head < c.heads; ++head) expect_close(c, s, head, run(c, s, rows, head));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CodecAttention,
    testing::Combine(testing::Values(32u, 40u, 64u, 72u, 96u, 100u, 128u, 160u, 256u),
                     testing::Values(uint8_t{0}, uint8_t{2}, uint8_t{3}, uint8_t{4}, uint8_t{8}),
                     testing::Values(uint8_t{0}, uint8_t{2}, uint8_t{3}, uint8_t{4}, uint8_t{8})));

TEST(CodecAttentionRows, UnequalDimsAndOnesThatAreNeverCoded) {
  for (auto [k_dim, v_dim, k_bits, v_bits] : {std::tuple{80u, 80u, 0, 0},
                                              {96u, 64u, 0, 4},
                                              {64u, 20u, 4, 0},
                                              {33u, 7u, 0, 0},
                                              {192u, 128u, 4, 4},
                                              {80u, 120u, 3, 2},
                                              {100u, 112u, 2, 3},
                                              {72u, 512u, 8, 4}}) {
    Case c;
    c.k_dim = k_dim;
    c.v_dim = v_dim;
    c.k_bits = static_cast<uint8_t>(k_bits);
    c.v_bits = static_cast<uint8_t>(v_bits);
    const Stored s = store(c);
    expect_close(c, s, 1, run(c, s, whole(s), 1));
  }
}

TEST(CodecAttentionRows, EveryKernelSetGivesTheSameBits) {
  for (uint32_t dim : kHeadDims) {
    for (uint8_t bits : {0, 1, 2, 3, 4, 8}) {
      Case c;
      c.k_dim = c.v_dim = dim;
      c.k_bits = c.v_bits = bits;
      c.group = 5;
      c.rows = 420;
      c.coded_rows = 320;
      const Stored a = store(c, &scalar_kernels());
      const auto expected = run(c, a, whole(a), 0);
      for (const Kernels* kernels : all_kernels()) {
        if (kernels == &scalar_kernels()) continue;
        const Stored b = store(c, kernels);
        ASSERT_EQ(a.k, b.k);
        ASSERT_EQ(expected, run(c, b, whole(b), 0))
            << kernels->name << " " << dim << " " << int{bits};
      }
    }
  }
}

// Chunks of exact rows alone, of coded ones alone, and of both, whichever holds the largest score.
TEST(CodecAttentionRows, ExactRowsBeforeCodedOnesCountAsTheyShould) {
  for (uint32_t seed : {1u, 2u, 3u, 4u}) {
    Case c;
    c.group = 8;
    c.exact_first = 256;
    c.coded_rows = 768 + 100;
    c.rows = 1100;
    c.seed = seed;
    const Stored s = store(c);
    const AttentionRows rows = whole(s);
    std::vector<RowLimit> limits(c.group);
    limits[1].end = 256;    // exact rows alone
    limits[2].end = 700;    // none of the exact tail
    limits[3].first = 256;  // none of the exact beginning
    limits[4].first = 900;  // the tail alone
    for (const auto& some : {std::vector<RowLimit>(c.group), limits}) {
      const auto together = run(c, s, rows, 1, some);
      expect_close(c, s, 1, together, some);
      for (uint32_t i = 0; i < c.group; ++i) {
        Case one = c;
        one.group = 1;
        Stored alone = s;
        alone.queries.assign(s.queries.begin() + i * c.k_dim,
                             s.queries.begin() + (i + 1) * c.k_dim);
        const auto out = run(one, alone, rows, 1, std::span(some).subspan(i, 1));
        EXPECT_TRUE(std::equal(out.begin(), out.end(), together.begin() + i * c.v_dim)) << i;
      }
    }
  }
}

TEST(CodecAttentionRows, CutsThreadsAndGroupsDoNotChangeABit) {
  SplitMix64 random{77};
  Case c;
  c.group = 4;
  c.coded_rows = 600;
  c.rows = 777;
  const Stored s = store(c);
  const AttentionRows rows = whole(s);
  const auto expected = run(c, s, rows, 1);
  for (int round = 0; round < 30; ++round) {
    AttentionRows cut(s.codec, 0, 0);
    std::vector<Plane> keep;
    keep.reserve(2 * c.rows);
    for (uint32_t first = 0; first < c.rows;) {
      const uint32_t end = std::min(c.rows, first + 1 + random.below(200));
      keep.push_back(*slice_rows(s.k, first, end));
      keep.push_back(*slice_rows(s.v, first, end));
      ASSERT_TRUE(cut.add(keep[keep.size() - 2], keep.back(), first, end).ok());
      first = end;
    }
    ASSERT_EQ(run(c, s, cut, 1), expected) << "round " << round;
  }
  // Chunk by chunk, in any order, as threads would.
  PreparedQueries queries;
  queries.prepare(*s.codec, 0, 0, 1, s.queries, 1 / std::sqrt(static_cast<float>(c.k_dim)));
  const size_t floats = partial_floats(queries, rows), chunks = rows.end_chunk();
  std::vector<float> partials(chunks * floats), out(expected.size());
  AttentionScratch scratch;
  for (uint32_t i = 0; i < chunks; ++i) {
    const uint32_t chunk = static_cast<uint32_t>(chunks) - 1 - i;
    attend_chunk(queries, rows, chunk, scratch,
                 std::span(partials).subspan(chunk * floats, floats));
  }
  merge_chunks(queries, rows, partials, scratch, out);
  EXPECT_EQ(out, expected);
  // One query at a time.
  for (uint32_t i = 0; i < c.group; ++i) {
    queries.prepare(*s.codec, 0, 0, 1, std::span(s.queries).subspan(i * c.k_dim, c.k_dim),
                    1 / std::sqrt(static_cast<float>(c.k_dim)));
    std::vector<float> one(c.v_dim);
    attend(queries, rows, scratch, one);
    EXPECT_TRUE(std::equal(one.begin(), one.end(), expected.begin() + i * c.v_dim));
  }
}

// Two sequences over one prefix of codes: chunks of the prefix are attended to once for both.
TEST(CodecAttentionRows, ASharedPassGivesEachSequenceItsOwnResult) {
  for (uint8_t bits : {0, 1, 2, 3, 4, 8}) {
    Case c;
    c.group = 6;  // the first 3 queries are one sequence's, the others the second's
    c.k_bits = c.v_bits = bits;
    const Stored s = store(c), other = store([&] {
                                 Case o = c;
                                 o.seed = 900;
                                 return o;
                               }());
    const AttentionRows a = whole(s);
    AttentionRows b(s.codec, 0, 0);
    ASSERT_TRUE(b.add(s.k, s.v, 0, 300).ok());
    ASSERT_TRUE(b.add(s.k, s.v, 300, 512).ok());
    const size_t width = size_t{c.heads} * c.k_dim;
    ASSERT_TRUE(b.add_exact(DType::f32, other.k_rows.data() + 512 * width,
                            other.v_rows.data() + 512 * width, 512, 9)
                    .ok());
    EXPECT_TRUE(same_chunk(a, a, 1));
    EXPECT_FALSE(same_chunk(a, a, 3));  // no rows
    EXPECT_FALSE(same_chunk(a, b, 2));  // own tails
    const auto expected_a = run(c, s, a, 1), expected_b = run(c, s, b, 1);
    PreparedQueries queries;
    AttentionScratch scratch;
    queries.prepare(*s.codec, 0, 0, 1, s.queries, 1 / std::sqrt(static_cast<float>(c.k_dim)));
    std::vector<std::vector<float>> partials;
    std::vector<ChunkPartial> of_a, of_b;
    for (uint32_t chunk = 0; chunk < 3; ++chunk) {
      const bool shared = chunk == 0;  // chunk 1 is cut in two for b: the same rows, two runs
      EXPECT_EQ(same_chunk(a, b, chunk), shared);
      for (uint32_t half = 0; half < (shared ? 1 : 2); ++half) {
        const QueryRange range{3 * half, shared ? 6u : 3u};
        partials.emplace_back(partial_floats(range.count, a));
        attend_chunk(queries, range, half == 0 ? a : b, chunk, scratch, partials.back());
        const float* floats = partials.back().data();
        if (half == 0) of_a.push_back({floats, range.count, 0});
        if (shared || half == 1) of_b.push_back({floats, range.count, shared ? 3u : 0u});
      }
    }
    std::vector<float> out_a(3 * c.v_dim), out_b(3 * c.v_dim);
    merge_chunks({0, 3}, a, of_a, scratch, out_a);
    merge_chunks({3, 3}, b, of_b, scratch, out_b);
    EXPECT_TRUE(std::equal(out_a.begin(), out_a.end(), expected_a.begin())) << int{bits};
    EXPECT_TRUE(std::equal(out_b.begin(), out_b.end(), expected_b.begin() + 3 * c.v_dim));
  }
}

// The same plane is the same rows wherever it is clipped; a copy of it isn't.
TEST(CodecAttentionRows, SameChunkMeansTheSameBytes) {
  Case c;
  c.rows = c.coded_rows = 768;
  const Stored s = store(c);
  const AttentionRows a = whole(s);
  AttentionRows cut(s.codec, 0, 0), copied(s.codec, 0, 0);
  ASSERT_TRUE(cut.add(s.k, s.v, 100, 700).ok());
  EXPECT_FALSE(same_chunk(a, cut, 0));
  EXPECT_TRUE(same_chunk(a, cut, 1));
  EXPECT_FALSE(same_chunk(a, cut, 2));
  const Plane k = *slice_rows(s.k, 0, 512), v = *slice_rows(s.v, 0, 512);
  ASSERT_TRUE(copied.add(k, v, 0, 512).ok());
  EXPECT_FALSE(same_chunk(a, copied, 1));
  ASSERT_TRUE(copied.add(s.k, s.v, 512, 768).ok());
  EXPECT_TRUE(same_chunk(a, copied, 2));
}

TEST(CodecAttentionRows, ATailInTheEnginesOwnBuffer) {
  Case c;
  const Stored s = store(c);
  const auto expected = run(c, s, whole(s), 0);
  const uint32_t tail = c.rows - c.coded_rows;
  const size_t width = size_t{c.heads} * c.k_dim;
  AttentionRows rows(s.codec, 0, 0);
  ASSERT_TRUE(rows.add(s.k, s.v, 0, c.coded_rows).ok());
  const float* k = s.k_rows.data() + c.coded_rows * width;
  const float* v = s.v_rows.data() + c.coded_rows * width;
  ASSERT_TRUE(rows.add_exact(DType::f32, k, v, c.coded_rows, tail - 1).ok());
  EXPECT_NE(run(c, s, rows, 0), expected);
  rows.drop_from(c.coded_rows);
  EXPECT_EQ(rows.end_row(), c.coded_rows);
  ASSERT_TRUE(rows.add_exact(DType::f32, k, v, c.coded_rows, tail).ok());
  EXPECT_EQ(run(c, s, rows, 0), expected);
  EXPECT_FALSE(rows.add_exact(DType::f32, k, v, 3, 1).ok());
  EXPECT_FALSE(rows.add(s.v, s.k, c.rows, c.rows).ok());
  EXPECT_FALSE(rows.add(s.k, s.v, c.rows, c.rows + 1).ok());
}

TEST(CodecAttentionRows, LimitsPerQuery) {
  Case c;
  c.group = 6;
  const Stored s = store(c);
  const std::vector<RowLimit> limits = {{700, 0, 0},   {650, 300, 4}, {1, 0, 0},
                                        {513, 512, 0}, {0, 0, 0},     {699, 698, 2}};
  expect_close(c, s, 0, run(c, s, whole(s), 0, limits), limits);
}

TEST(CodecAttentionRows, GapsAndNoRows) {
  Case c;
  c.group = 2;
  const Stored s = store(c);
  AttentionRows rows(s.codec, 0, 0);
  EXPECT_EQ(run(c, s, rows, 0), std::vector<float>(size_t{c.group} * c.v_dim, 0.0f));
  ASSERT_TRUE(rows.add(s.k, s.v, 0, 4).ok());
  ASSERT_TRUE(rows.add(s.k, s.v, 390, 700).ok());
  const std::vector<RowLimit> limits(c.group, RowLimit{700, 390, 4});
  expect_close(c, s, 0, run(c, s, rows, 0), limits);
}

TEST(CodecAttentionRows, ScoresFarApart) {
  // One key dominates by far more than float's exponent range: no NaN.
  Case c;
  c.mean_and_gain = false;
  c.group = 1;
  Stored s = store(c);
  for (float& q : s.queries) q *= 3000;
  for (float x : run(c, s, whole(s), 0)) EXPECT_TRUE(std::isfinite(x));
  for (float& q : s.queries) q = 0;
  expect_close(c, s, 0, run(c, s, whole(s), 0));
}

}  // namespace
}  // namespace kv
