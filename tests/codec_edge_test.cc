// Hostile and extreme input for every head dim, bit width and kernel set: it is coded within what
// the format promises, kept exact, or refused by name; never silently wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "codec/attention.h"
#include "codec/calibrate.h"
#include "codec/turboquant.h"
#include "tests/support/codec_data.h"

namespace kv {
namespace {

using namespace codec_data;

constexpr uint8_t kAllBits[] = {1, 2, 3, 4, 8};

// The worst case over single vectors, not the mean: a spike or a constant meets few code values.
double limit_of(uint8_t bits) {
  return bits == 8 ? 2e-4 : bits == 4 ? .025 : bits == 3 ? .08 : bits == 2 ? .25 : .6;
}

struct Setting {
  uint32_t dim;
  uint8_t bits;
  const Kernels* kernels;
  std::shared_ptr<const Codec> codec;

  std::string name() const {
    return std::string(kernels->name) + " d " + std::to_string(dim) + " bits " +
           std::to_string(bits);
  }
  Plane coded(const std::vector<float>& x) const {
    auto plane = codec->encode(plane_of(Side::v, 1, dim, 0, x));
    KV_CHECK(plane.ok());
    return *plane;
  }
  std::vector<float> round_trip(const std::vector<float>& x) const {
    return values_of(*codec, coded(x));
  }
};

template <typename F>
void for_each_setting(F f) {
  for (const Kernels* kernels : all_kernels()) {
    for (uint32_t dim : kHeadDims) {
      for (uint8_t bits : kAllBits) {
        CodingSettings settings;
        settings.k_bits = settings.v_bits = bits;
        settings.exact_tokens = 0;
        settings.raw_dtype = DType::bf16;
        const ModelSpec model = model_of(1, dim, dim);
        Setting s{dim, bits, kernels, codec_of(model, *plain_profile(model, settings), kernels)};
        SCOPED_TRACE(s.name());
        f(s);
      }
    }
  }
}

TEST(CodecEdge, ZerosAndVectorsTooSmallForAScaleDecodeToZeros) {
  for_each_setting([](const Setting& s) {
    for (float x : {0.0f, -0.0f, 1e-45f, -1e-42f, 1e-20f, 1e-12f}) {
      const Plane coded = s.coded(std::vector<float>(s.dim, x));
      ASSERT_EQ(coded.runs, (std::vector<RowRun>{{RunForm::codes, 1}}));
      for (size_t i = 0; i < coded.bytes.size(); ++i) ASSERT_EQ(coded.bytes.data()[i], 0) << x;
      for (float y : values_of(*s.codec, coded)) ASSERT_EQ(y, 0.0f);
    }
  });
}

TEST(CodecEdge, SmallScalesLoseOnlyTheScalesOwnPrecision) {
  for_each_setting([](const Setting& s) {
    // A subnormal scale has fewer bits: 2^-25 of absolute error per value at most, times a code.
    auto x = gaussians(s.dim, 3, 1e-5f);
    const auto y = s.round_trip(x);
    const double share = 0x1p-25 / 1e-5 * (s.bits == 8 ? 40.0 : 1.0);
    ASSERT_LT(relative_error(x, y), limit_of(s.bits) + 2 * share * share);
  });
}

TEST(CodecEdge, SpikesConstantsAndAlternatingSigns) {
  for_each_setting([](const Setting& s) {
    for (uint32_t at : {0u, 7u, s.dim / 2, s.dim - 1}) {
      std::vector<float> spike(s.dim, 0.0f);
      spike[at] = -1000;
      ASSERT_LT(relative_error(spike, s.round_trip(spike)), limit_of(s.bits)) << at;
    }
    std::vector<float> constant(s.dim, 3.25f), alternating(s.dim), ramp(s.dim);
    for (uint32_t j = 0; j < s.dim; ++j) {
      alternating[j] = j % 2 ? 1.5f : -1.5f;
      ramp[j] = static_cast<float>(j);
    }
    ASSERT_LT(relative_error(constant, s.round_trip(constant)), limit_of(s.bits));
    ASSERT_LT(relative_error(alternating, s.round_trip(alternating)), limit_of(s.bits));
    ASSERT_LT(relative_error(ramp, s.round_trip(ramp)), limit_of(s.bits));
  });
}

TEST(CodecEdge, NormsUpToAMillionAreCodedOrKeptExact) {
  for_each_setting([](const Setting& s) {
    for (double norm : {1e3, 1e5, 3e5, 1e6, 1e7, 1e15}) {
      auto x = gaussians(s.dim, 11);
      double square = 0;
      for (float v : x) square += double{v} * v;
      for (float& v : x) v = static_cast<float>(v * norm / std::sqrt(square));
      const Plane plane = s.coded(x);
      const double root_mean_square = norm / std::sqrt(static_cast<double>(s.dim));
      const bool fits = root_mean_square < 0.8 * 65504;  // 8 bit: the scale is 1/30 of it or less
      if (fits) {
        ASSERT_EQ(plane.bits, s.bits) << norm;
      }
      if (root_mean_square > 127 * 65504.0) {
        ASSERT_EQ(plane.bits, 0) << norm;
      }
      if (plane.bits == 0) {
        ASSERT_EQ(plane.runs, (std::vector<RowRun>{{RunForm::exact, 1}})) << "seen by the caller";
      }
      ASSERT_LT(relative_error(x, values_of(*s.codec, plane)), limit_of(s.bits)) << norm;
    }
  });
}

TEST(CodecEdge, AValueThatIsNotFiniteIsRefusedByName) {
  for_each_setting([](const Setting& s) {
    for (float bad : {NAN, INFINITY, -INFINITY}) {
      for (uint32_t at : {0u, s.dim - 1}) {
        auto x = gaussians(3 * s.dim, 1);
        x[2 * s.dim + at] = bad;
        auto refused = s.codec->encode(plane_of(Side::k, 1, s.dim, 40, x));
        ASSERT_EQ(refused.status().code(), StatusCode::invalid_argument);
        ASSERT_EQ(refused.status().message(),
                  "layer 0 part 0 K: row 42 head 0: a value is not finite");
      }
    }
  });
}

// Keys k = offset + noise, offset 40 times the noise's norm and the same for all tokens, as Qwen2's
// key biases make them. The mean comes from other tokens, as calibration gives it.
struct OffsetKeys {
  explicit OffsetKeys(uint32_t dim) : offset(gaussians(dim, 71, 40)), dim_(dim) {}
  std::vector<float> rows(uint32_t n, uint64_t seed, bool with_offset) const {
    auto x = gaussians(size_t{n} * dim_, seed);
    for (size_t i = 0; with_offset && i < x.size(); ++i) x[i] += offset[i % dim_];
    return x;
  }
  const std::vector<float> offset;

 private:
  uint32_t dim_;
};

// Output of attention on `keys` coded under `profile`, values raw.
std::vector<float> attended(const ModelSpec& model, const Profile& profile, uint32_t dim,
                            const std::vector<float>& keys, const std::vector<float>& values,
                            const std::vector<float>& query) {
  auto codec = codec_of(model, profile);
  const Plane k = *codec->encode(plane_of(Side::k, 1, dim, 0, keys));
  const Plane v = *codec->encode(plane_of(Side::v, 1, dim, 0, values));
  AttentionRows rows(codec, 0, 0);
  KV_CHECK(rows.add(k, v, 0, k.rows()).ok());
  PreparedQueries queries;
  queries.prepare(*codec, 0, 0, 0, query, 1 / std::sqrt(static_cast<float>(dim)));
  AttentionScratch scratch;
  std::vector<float> out(query.size());
  attend(queries, rows, scratch, out);
  return out;
}

TEST(CodecEdge, KeysWithAnOffsetOf40TimesTheirNormLoseNothing) {
  for (uint32_t dim : {64u, 80u, 96u, 128u, 256u}) {
    for (uint8_t bits : kAllBits) {
      const OffsetKeys keys(dim);
      const ModelSpec model = model_of(1, dim, dim);
      CodingSettings settings;
      settings.k_bits = bits;
      settings.v_bits = 0;
      settings.raw_dtype = DType::bf16;
      const Profile plain = *plain_profile(model, settings);
      settings.k_bits = 0;
      const Profile raw = *plain_profile(model, settings);
      auto calibrated = [&](bool offset) {
        KeyStatistics statistics(model);
        KV_CHECK(statistics.add_keys(0, 0, 0, keys.rows(1000, 72, offset)).ok());
        return *statistics.calibrated(plain);
      };
      const auto values = gaussians(size_t{400} * dim, 73), query = gaussians(4 * dim, 74, 2);
      auto error = [&](const Profile& profile, bool offset) {
        const auto rows = keys.rows(400, 75, offset);
        // Softmax does not see the offset: the exact answer is that of the keys without it.
        const auto exact = attended(model, raw, dim, keys.rows(400, 75, false), values, query);
        return relative_error(exact, attended(model, profile, dim, rows, values, query));
      };
      const double without = error(calibrated(false), false), with = error(calibrated(true), true);
      EXPECT_LT(with, without * 1.1 + 3e-4) << dim << " bits " << int{bits};
      if (bits < 8 && bits > 1) {
        EXPECT_GT(error(plain, true), 10 * without) << "the test's offset matters";
      }
    }
  }
}

}  // namespace
}  // namespace kv
