// Planes of a profile with transforms: what comes back, cut and joined anywhere, the same with
// every kernel set; what does not fit stays exact; damage. The stream itself: codec_transform_test.
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "codec/attention.h"
#include "codec/plan.h"
#include "codec/transform.h"
#include "proto/checksum.h"
#include "tests/support/codec_data.h"
#include "tests/support/transform_profile.h"

namespace kv {
namespace {

using codec_data::SplitMix64;

constexpr uint32_t kBlock = 64, kExact = 4, kRowValues = 2 * 16;

ModelSpec streamed_model() {
  PartSpec part;
  part.heads = 2;
  part.k_dim = part.v_dim = 16;
  return {"m", Id{{9}}, {{{part}}}};
}

Profile streamed_profile(float step = 0.125f, DType raw = DType::f16) {
  CodingSettings settings;
  settings.k_bits = settings.v_bits = 0;
  settings.block_tokens = kBlock;
  settings.raw_dtype = raw;
  return with_transforms(*plain_profile(streamed_model(), settings), streamed_model(), step, true);
}

std::shared_ptr<const Codec> streams(const Profile& profile = streamed_profile(),
                                     const Kernels* kernels = nullptr) {
  auto codec = Codec::create(streamed_model(), std::make_shared<const Profile>(profile), kernels);
  KV_CHECK(codec.ok());
  return *codec;
}

Plane given_rows(Side side, uint32_t first, uint32_t rows, uint64_t seed = 5) {
  Plane p;
  p.side = side;
  p.dtype = DType::f32;
  p.heads = 2;
  p.dim = 16;
  p.first_row = first;
  p.runs = {{RunForm::exact, rows}};
  std::vector<float> values;
  for (uint32_t r = first; r < first + rows; ++r) {
    SplitMix64 random{seed * 1000 + r};
    for (uint32_t i = 0; i < kRowValues; ++i) values.push_back(random.gaussian());
  }
  p.bytes = Bytes::copy_of({reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4});
  return p;
}

std::vector<float> values_of(const Codec& codec, const Plane& p) {
  std::vector<float> out(size_t{p.rows()} * kRowValues);
  Status s = codec.decode_rows(p, p.first_row, p.end_row(), DType::f32,
                               {reinterpret_cast<uint8_t*>(out.data()), out.size() * 4});
  EXPECT_TRUE(s.ok()) << s.to_string();
  return out;
}

TEST(CodecStreams, FirstTokensAreExactTheRestOneStreamOfABlock) {
  const auto codec = streams();
  for (Side side : {Side::k, Side::v}) {
    const Plane given = given_rows(side, 0, kBlock);
    const Plane plane = *codec->encode(given);
    ASSERT_EQ(plane.runs.size(), 2u);
    const RowRun exact{RunForm::exact, kExact}, &stream = plane.runs[1];
    EXPECT_EQ(plane.runs[0], exact);
    EXPECT_EQ(stream, (RowRun{RunForm::stream, kBlock - kExact, stream.bytes, 0, kBlock - kExact}));
    EXPECT_EQ(plane.bits, 0);
    EXPECT_EQ(plane.bytes.size(), plane_bytes(plane));
    EXPECT_LT(plane.bytes.size(), given.bytes.size() / 4);  // .5 of f16
    const std::vector<float> got = values_of(*codec, plane), from = values_of(*codec, given);
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], from[i], 0.11f) << i;
    EXPECT_EQ(*codec->encode(plane), plane) << "coded rows stay";
    EXPECT_TRUE(codec->check(plane).ok() && codec->check_streams(plane).ok());
    EXPECT_FALSE(codec->raw(plane).ok());
  }
}

TEST(CodecStreams, GoldenPlane) {
  const Profile profile = streamed_profile();
  ByteWriter encoded;
  encode(profile, encoded);
  EXPECT_EQ(encoded.size(), 2'977u);
  EXPECT_EQ(encoded.size(), encoded_bytes(profile));
  EXPECT_EQ(crc32c(encoded.span()), 119'252'623u);
  Object object;
  Plane given = given_rows(Side::k, 0, kBlock);
  std::vector<float> values;  // of no library's functions
  for (int i = 0; i < static_cast<int>(kBlock * kRowValues); ++i) {
    values.push_back(static_cast<float>(i * 37 % 64 - 32) / 16);
  }
  given.bytes = Bytes::copy_of({reinterpret_cast<uint8_t*>(values.data()), values.size() * 4});
  object.planes = {*streams(profile)->encode(given)};
  object.planes[0] = *slice_rows(object.planes[0], 2, 60);
  ByteWriter header;
  encode_header(object, header);
  EXPECT_EQ(crc32c(header.span()), 1'353'528'738u);
  EXPECT_EQ(crc32c(object.planes[0].bytes.span()), 956'938'357u);
}

TEST(CodecStreams, TheSameBytesWithEveryKernelSet) {
  const Profile profile = streamed_profile();
  const Plane given = given_rows(Side::k, kBlock, kBlock);
  const Plane expected = *streams(profile, &scalar_kernels())->encode(given);
  for (const Kernels* kernels : available_kernels()) {
    const auto codec = streams(profile, kernels);
    EXPECT_EQ(*codec->encode(given), expected) << kernels->name;
    EXPECT_EQ(codec->decoded(expected, DType::f16)->bytes,
              streams(profile)->decoded(expected, DType::f16)->bytes);
  }
}

TEST(CodecStreams, CutsJoinAgainAndHaveTheSameRows) {
  const auto codec = streams();
  const Plane block = *codec->encode(given_rows(Side::k, 0, kBlock));
  const Plane next = *codec->encode(given_rows(Side::k, kBlock, kBlock));
  const std::vector<float> all = values_of(*codec, *join_rows({block, next}));
  SplitMix64 random{3};
  for (int i = 0; i < 30; ++i) {
    std::vector<Plane> pieces;
    for (const Plane* plane : {&block, &next}) {
      uint32_t from = plane->first_row;
      while (from < plane->end_row()) {
        const auto end = std::min<uint32_t>(plane->end_row(),
                                            from + 1 + static_cast<uint32_t>(random.next() % 40));
        pieces.push_back(*slice_rows(*plane, from, end));
        const std::vector<float> got = values_of(*codec, pieces.back());
        EXPECT_TRUE(std::equal(got.begin(), got.end(), all.begin() + from * kRowValues));
        from = end;
      }
    }
    EXPECT_EQ(*join_rows(pieces), *join_rows({block, next}));
    // In a block's form again: streams stay as they are, rows between them become some.
    std::vector<Plane> mixed = {*slice_rows(next, kBlock, kBlock + 10),
                                *codec->raw(given_rows(Side::k, kBlock + 10, 20)),
                                *slice_rows(next, kBlock + 30, 2 * kBlock)};
    const Plane made = *codec->encode(*join_rows(mixed));
    ASSERT_EQ(made.runs.size(), 3u);
    const std::vector<float> got = values_of(*codec, made);
    EXPECT_TRUE(
        std::equal(got.begin(), got.begin() + 10 * kRowValues, all.begin() + kBlock * kRowValues));
  }
}

TEST(CodecStreams, WhatDoesNotFitOrPayStaysExact) {
  auto forms = [](const Plane& p) {
    bool exact = true;
    for (const RowRun& run : p.runs) exact &= run.form == RunForm::exact;
    return exact;
  };
  const auto fine = streams(streamed_profile(1e-6f));  // integers beyond 32,767
  const Plane given = given_rows(Side::v, kBlock, kBlock);
  const Plane kept = *fine->encode(given);
  EXPECT_TRUE(forms(kept));
  EXPECT_EQ(kept, *fine->raw(given));
  const auto costly = streams(streamed_profile(5e-4f));  // streams longer than exact rows
  EXPECT_EQ(*costly->encode(given), *costly->raw(given));
  // Streams that came stay, where other rows are kept exact.
  const Plane coded = *streams()->encode(given);
  const Plane mixed = *join_rows(
      {*slice_rows(coded, kBlock, kBlock + 9), *fine->raw(given_rows(Side::v, kBlock + 9, 30))});
  EXPECT_EQ(*fine->encode(mixed), mixed);
  std::vector<float> bad(kBlock * kRowValues, 1);
  bad[77] = std::numeric_limits<float>::quiet_NaN();
  Plane nan = given;
  nan.bytes = Bytes::copy_of({reinterpret_cast<const uint8_t*>(bad.data()), bad.size() * 4});
  EXPECT_EQ(streams()->encode(nan).status().code(), StatusCode::invalid_argument);
}

TEST(CodecStreams, DamageIsCorruptionOrOtherRowsAndNeverMore) {
  const auto codec = streams();
  const Plane plane = *codec->encode(given_rows(Side::k, kBlock, kBlock));
  SplitMix64 random{8};
  int refused = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<uint8_t> bytes(plane.bytes.data(), plane.bytes.data() + plane.bytes.size());
    bytes[random.next() % bytes.size()] ^= static_cast<uint8_t>(1 + random.next() % 255);
    Plane damaged = plane;
    damaged.bytes = Bytes::copy_of(bytes);
    const Status s = codec->check_streams(damaged);
    EXPECT_TRUE(s.ok() || s.code() == StatusCode::corruption) << s.to_string();
    refused += s.ok() ? 0 : 1;
  }
  EXPECT_GT(refused, 300);
  for (RowRun run : {RowRun{RunForm::stream, kBlock, plane.runs[0].bytes, 1, kBlock},
                     RowRun{RunForm::stream, kBlock, plane.runs[0].bytes, 0, 0},
                     RowRun{RunForm::stream, kBlock, plane.runs[0].bytes, 0, 5000},
                     RowRun{RunForm::stream, kBlock, plane.runs[0].bytes, 0, kBlock + 1}}) {
    Plane wrong = plane;
    wrong.runs = {run};
    EXPECT_EQ(codec->check_streams(wrong).code(), StatusCode::corruption);
  }
}

TEST(CodecStreams, AreRefusedWhereNoTransformIsNamedAndByAttention) {
  const auto codec = streams();
  const Plane plane = *codec->encode(given_rows(Side::k, kBlock, kBlock));
  const Plane values = *codec->encode(given_rows(Side::v, kBlock, kBlock));
  auto plain = Codec::create(streamed_model(), std::make_shared<const Profile>([] {
                               CodingSettings settings;
                               settings.k_bits = settings.v_bits = 0;
                               return *plain_profile(streamed_model(), settings);
                             }()));
  EXPECT_EQ((*plain)->check(plane).code(), StatusCode::invalid_argument);
  AttentionRows rows(codec, 0, 0);
  EXPECT_EQ(rows.add(plane, values, kBlock, 2 * kBlock).code(), StatusCode::invalid_argument);
  EXPECT_TRUE(rows.add(*codec->decoded(plane, DType::f16), *codec->decoded(values, DType::f16),
                       kBlock, 2 * kBlock)
                  .ok());
}

TEST(CodecStreams, AProfileOfAnotherShapeIsRefused) {
  ModelSpec other = streamed_model();
  other.layers[0].parts[0].v_dim = 8;
  const Status s = validate(streamed_profile(), other);
  EXPECT_EQ(s.code(), StatusCode::invalid_argument);
  EXPECT_NE(s.message().find("layer 0 part 0: V"), std::string::npos) << s.to_string();
  Profile profile = streamed_profile();
  profile.parts[0][0].v_transform = 7;
  EXPECT_EQ(validate(profile, streamed_model()).code(), StatusCode::invalid_argument);
  profile = streamed_profile();
  profile.codec_version = 1;
  EXPECT_EQ(validate(profile, streamed_model()).code(), StatusCode::invalid_argument);
  profile = streamed_profile();
  profile.parts[0][0].k_bits = 4;  // with the number of a transform
  profile.parts[0][0].k_transform = 1;
  EXPECT_EQ(validate(profile, streamed_model()).code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace kv
