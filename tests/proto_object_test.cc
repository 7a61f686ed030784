// Planes and objects: slicing and joining against a row-by-row oracle; headers that survive their
// bytes; refusals that name layer, part, side, expected and given.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "proto/plane.h"
#include "tests/support/proto_payload_bytes.h"
#include "tests/support/proto_specs.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::HasSubstr;

// A row as a value, independent of where its run lies.
struct Row {
  RunForm form;
  std::vector<uint8_t> bytes;  ///< exact: (H, D) of dtype; codes: per head its code, then scale
  bool operator==(const Row&) const = default;
};

// The oracle: every row of a plane, read by the layout of proto/plane.h one vector at a time.
std::vector<Row> rows_of(const Plane& p) {
  std::vector<Row> out;
  size_t at = 0;
  for (const RowRun& run : p.runs) {
    size_t code = size_t{p.dim} * p.bits / 8;
    size_t exact = size_t{p.heads} * p.dim * dtype_bytes(p.dtype);
    for (size_t r = 0; r < run.rows; ++r) {
      Row row{run.form, {}};
      auto take = [&](size_t offset, size_t size) {
        for (size_t i = 0; i < size; ++i) row.bytes.push_back(p.bytes.data()[at + offset + i]);
      };
      if (run.form == RunForm::exact) take(r * exact, exact);
      for (size_t h = 0; h < p.heads && run.form == RunForm::codes; ++h) {
        take((h * run.rows + r) * code, code);
        take(p.heads * run.rows * code + (h * run.rows + r) * 2, 2);
      }
      out.push_back(std::move(row));
    }
    at += run.form == RunForm::exact ? run.rows * exact : run.rows * p.heads * (code + 2);
  }
  EXPECT_EQ(at, p.bytes.size());
  return out;
}

// Random runs in any order of forms, adjacent runs of one form among them.
Plane plane_with_runs(Rng& rng) {
  Plane p;
  p.layer = 3;
  p.part = 1;
  p.side = Side::v;
  p.dtype = static_cast<DType>(pick(rng, 1, 3));
  p.heads = pick(rng, 1, 4);
  p.dim = pick(rng, 1, 5) * 8;
  constexpr uint8_t kBits[] = {1, 2, 3, 4, 8};
  uint8_t bits = kBits[rng() % std::size(kBits)];
  p.first_row = pick(rng, 0, 1000);
  for (uint32_t runs = pick(rng, 1, 5); runs > 0; --runs) {
    p.runs.push_back({static_cast<RunForm>(rng() % 2), pick(rng, 1, 7)});
    if (p.runs.back().form == RunForm::codes) p.bits = bits;
  }
  p.bytes = Bytes::owning(random_vector(rng, plane_bytes(p)));
  return p;
}

TEST(Plane, SlicesHoldExactlyTheirRows) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Rng rng(seed);
    Plane p = plane_with_runs(rng);
    auto rows = rows_of(p);
    for (uint32_t a = 0; a <= rows.size(); ++a) {
      for (uint32_t b = a; b <= rows.size(); ++b) {
        auto s = slice_rows(p, p.first_row + a, p.first_row + b);
        ASSERT_TRUE(s.ok()) << "seed " << seed;
        EXPECT_EQ(s->first_row, p.first_row + a);
        EXPECT_EQ(s->rows(), b - a);
        EXPECT_EQ(s->bytes.size(), plane_bytes(*s));
        EXPECT_EQ(rows_of(*s), std::vector<Row>(rows.begin() + a, rows.begin() + b))
            << "seed " << seed << " [" << a << ", " << b << ")";
      }
    }
  }
}

TEST(Plane, JoiningTheSlicesGivesTheWholeWithMergedRuns) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    Plane p = plane_with_runs(rng);
    std::vector<Plane> pieces;
    for (uint32_t row = p.first_row; row < p.end_row();) {
      uint32_t next = std::min(p.end_row(), row + pick(rng, 1, 6));
      pieces.push_back(*slice_rows(p, row, next));
      row = next;
    }
    auto joined = join_rows(pieces);
    ASSERT_TRUE(joined.ok()) << "seed " << seed << joined.status().to_string();
    EXPECT_EQ(rows_of(*joined), rows_of(p)) << "seed " << seed;
    for (size_t i = 1; i < joined->runs.size(); ++i) {
      EXPECT_NE(joined->runs[i].form, joined->runs[i - 1].form) << "adjacent runs become one";
    }
    EXPECT_EQ(*joined, *slice_rows(p, p.first_row, p.end_row())) << "seed " << seed;
    uint32_t a = pick(rng, p.first_row, p.end_row()), b = pick(rng, a, p.end_row());
    uint32_t c = pick(rng, a, b), d = pick(rng, c, b);
    EXPECT_EQ(*slice_rows(*slice_rows(p, a, b), c, d), *slice_rows(p, c, d)) << "seed " << seed;
  }
}

TEST(Plane, SliceRefusesRowsItLacks) {
  Rng rng(1);
  Plane p = plane_with_runs(rng);
  uint32_t a = p.first_row, b = p.end_row();
  for (auto [x, y] : {std::pair{a, b + 1}, {a - 1, b}, {b, a}, {b + 1, b + 1}, {0u, UINT32_MAX}}) {
    EXPECT_EQ(slice_rows(p, x, y).status().code(), StatusCode::invalid_argument) << x << " " << y;
  }
  p.bytes = p.bytes.slice(0, p.bytes.size() - 1);
  EXPECT_EQ(slice_rows(p, a, b).status().code(), StatusCode::invalid_argument) << "short bytes";
}

TEST(Plane, JoinNamesThePlaneThatDoesNotFit) {
  Rng rng(1);
  Plane p = random_plane(rng, {Side::k, 2, 8}, DType::f16, 4, 0, 8, 0);
  Plane next = p;
  next.first_row = 8;
  ASSERT_TRUE(join_rows({p, next}).ok());
  const std::function<void(Plane&)> changes[] = {
      [](Plane& q) { q.first_row = 9; },      [](Plane& q) { q.layer = 1; },
      [](Plane& q) { q.part = 1; },           [](Plane& q) { q.side = Side::v; },
      [](Plane& q) { q.heads = 1; },          [](Plane& q) { q.dim = 16; },
      [](Plane& q) { q.dtype = DType::f32; }, [](Plane& q) { q.bits = 3; },
      [](Plane& q) { q.bytes = {}; },
  };
  for (const auto& change : changes) {
    Plane bad = next;
    change(bad);
    auto joined = join_rows({p, bad});
    EXPECT_THAT(joined.status().to_string(), HasSubstr("invalid_argument: join: plane 1"));
  }
  EXPECT_EQ(join_rows({}).status().code(), StatusCode::invalid_argument);
}

TEST(Plane, JoinRefusesTwoCodeWidthsBehindAnExactPlane) {
  Rng rng(2);
  SideSpec side{Side::k, 2, 8};
  Plane exact = random_plane(rng, side, DType::f16, 0, 0, 4, 4);
  Plane four = random_plane(rng, side, DType::f16, 4, 4, 8, 0);
  Plane three = random_plane(rng, side, DType::f16, 3, 8, 12, 0);
  EXPECT_TRUE(join_rows({exact, four}).ok());
  EXPECT_THAT(join_rows({exact, four, three}).status().to_string(), HasSubstr("plane 2"));
}

TEST(Object, ValidOnesPassAndHeadersComeBack) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    ModelSpec m = random_model(rng);
    Profile profile = random_profile(rng, m);
    Object o = random_object(rng, m, profile);
    ASSERT_TRUE(validate(o, m, profile).ok()) << seed << validate(o, m, profile).to_string();
    ByteWriter header, payload;
    encode_header(o, header);
    for (const auto& p : o.planes) payload.raw(p.bytes.span());
    for (const auto& s : o.states) payload.raw(s.bytes.span());
    ByteReader r(header.span());
    auto back = decode_header(r);
    ASSERT_TRUE(back.ok() && r.done()) << seed;
    EXPECT_EQ(expected_payload_bytes(*back), payload.size());
    Bytes bytes = Bytes::owning(payload.take());
    if (!bytes.empty()) {
      Object cut = *back;
      EXPECT_EQ(attach_payload(cut, bytes.slice(0, bytes.size() - 1)).code(),
                StatusCode::corruption);
    }
    ASSERT_TRUE(attach_payload(*back, bytes).ok()) << seed;
    EXPECT_EQ(back->planes, o.planes);
    EXPECT_EQ(back->states, o.states);
    EXPECT_EQ(back->tokens, o.tokens);
    EXPECT_EQ(back->extras, o.extras);
    EXPECT_EQ(back->name, o.name);
    EXPECT_TRUE(id_matches(*back)) << seed;
    EXPECT_TRUE(validate(*back, m, profile).ok()) << seed;
  }
}

TEST(Object, EveryTruncatedHeaderIsRefusedAndNoFlipCrashes) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Rng rng(seed);
    ModelSpec m = random_model(rng);
    Profile profile = random_profile(rng, m);
    ByteWriter w;
    encode_header(random_object(rng, m, profile), w);
    for (size_t n = 0; n < w.size(); ++n) {
      std::vector<uint8_t> cut(w.span().begin(), w.span().begin() + static_cast<ptrdiff_t>(n));
      cut.shrink_to_fit();
      ByteReader r(cut);
      EXPECT_EQ(decode_header(r).status().code(), StatusCode::corruption) << seed << " " << n;
    }
    for (size_t i = 0; i < w.size() * 8; ++i) {
      std::vector<uint8_t> bytes(w.span().begin(), w.span().end());
      bytes[i / 8] ^= static_cast<uint8_t>(1u << i % 8);
      ByteReader r(bytes);
      auto o = decode_header(r);
      if (!o.ok()) continue;
      EXPECT_LE(expected_payload_bytes(*o), kMaxObjectBytes) << "memory stays flat";
      (void)validate(*o, m, profile);
      ByteWriter again;
      encode_header(*o, again);
      EXPECT_TRUE(std::equal(again.span().begin(), again.span().end(), bytes.begin())) << i;
    }
  }
}

TEST(Object, RandomBytesAreNeverAHeaderThatOverflows) {
  Rng rng(7);
  for (int round = 0; round < 2000; ++round) {
    auto bytes = random_vector(rng, pick(rng, 0, 300));
    if (!bytes.empty()) bytes[0] = static_cast<uint8_t>(pick(rng, 1, 4));
    ByteReader r(bytes);
    auto o = decode_header(r);
    if (!o.ok()) continue;
    EXPECT_LE(expected_payload_bytes(*o), kMaxObjectBytes);
  }
}

TEST(Object, HeadersThatCallForMoreThanTheLimitAreRefusedEvenIfTheirSumWrapsAround) {
  Plane huge;  // 2^22 rows of 2^10 heads and 2^16 f32: 2^50 bytes
  huge.heads = kMaxHeads;
  huge.dim = kMaxDim;
  huge.dtype = DType::f32;
  huge.runs = {{RunForm::exact, kMaxTokens}};
  for (uint32_t planes : {1u, kMaxPlanesPerObject}) {  // 2^14 of them add up to 0 in 64 bits
    Object o;
    o.tokens = {1};
    o.planes.assign(planes, huge);
    ByteWriter w;
    encode_header(o, w);
    ByteReader r(w.span());
    EXPECT_EQ(decode_header(r).status().code(), StatusCode::corruption) << planes;
  }
}

TEST(Object, CodedRowsThatFillNoWholeBytesAreRoundedUp) {
  Object o;
  o.tokens = {1};
  o.planes.resize(1);
  Plane& p = o.planes[0];
  p.heads = 1, p.dim = 36, p.bits = 3;
  p.runs = {{RunForm::codes, 1}};
  ByteWriter w;
  encode_header(o, w);
  ByteReader r(w.span());
  auto back = decode_header(r);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(expected_payload_bytes(*back), 14u + 2) << "108 bits and a scale";
}

// A model of one full part (2 heads, K 8, V 16), 4-bit keys, 4 exact tokens, and a valid block.
struct OneBlock {
  ModelSpec model{"m", Id{{1}}, {{{}}, {{PartSpec{}}}}};
  Profile profile;
  Object block;
  OneBlock() {
    PartSpec& part = model.layers[1].parts[0];
    part.heads = 2, part.k_dim = 8, part.v_dim = 16;
    profile.block_tokens = 16;
    profile.parts = {{}, {PartCoding{4, 0, {}, {}}}};
    Rng rng(1);
    block.tokens.resize(16);
    for (const auto& side : sides_of(part)) {
      uint8_t bits = side.side == Side::k ? 4 : 0;
      block.planes.push_back(random_plane(rng, side, DType::f16, bits, 0, 16, 4));
      block.planes.back().layer = 1;
    }
    stamp(block, {"ns", model.fingerprint, profile.id()});
  }
};

TEST(Object, RefusalsNameLayerPartSideExpectedAndGiven) {
  auto message = [](auto change) {
    OneBlock t;
    change(t.block);
    return validate(t.block, t.model, t.profile).to_string();
  };
  EXPECT_EQ(message([](Object&) {}), "ok");
  EXPECT_THAT(message([](Object& o) { o.planes[0].heads = 3; }),
              HasSubstr("layer 1 part 0 side K: heads: expected 2, given 3"));
  EXPECT_THAT(message([](Object& o) { o.planes[1].dim = 8; }),
              HasSubstr("layer 1 part 0 side V: dim: expected 16, given 8"));
  EXPECT_THAT(message([](Object& o) { o.planes[1].dtype = DType::f32; }),
              HasSubstr("layer 1 part 0 side V: dtype: expected f16, given f32"));
  EXPECT_THAT(message([](Object& o) { o.planes[0].bits = 3; }),
              HasSubstr("layer 1 part 0 side K: bits: expected 4, given 3"));
  EXPECT_THAT(message([](Object& o) { o.planes[0].bytes = {}; }),
              HasSubstr("layer 1 part 0 side K: bytes: expected 272, given 0"));
  EXPECT_THAT(message([](Object& o) {
                o.planes[0].runs = {{RunForm::codes, 16}};
              }),
              HasSubstr("layer 1 part 0 side K: first coded row at least: expected 4, given 0"));
  EXPECT_THAT(message([](Object& o) {
                o.planes[0].runs.push_back({RunForm::codes, 0});
              }),
              HasSubstr("layer 1 part 0 side K: a run of 0 rows"));
  EXPECT_THAT(message([](Object& o) {
                o.planes[0].runs.assign(65, {RunForm::exact, 1});
              }),
              HasSubstr("layer 1 part 0 side K: runs at most: expected 64, given 65"));
  EXPECT_THAT(message([](Object& o) { o.planes[1].side = Side::other; }),
              HasSubstr("layer 1 part 0 side other: a full part has no such side"));
  EXPECT_THAT(message([](Object& o) { o.planes[1].layer = 2; }),
              HasSubstr("layer 2 part 0 side V: the model has no such part"));
  EXPECT_THAT(message([](Object& o) { o.planes.pop_back(); }),
              HasSubstr("layer 1 part 0 side V: expected rows [0, 16), given no plane"));
  EXPECT_THAT(message([](Object& o) { o.planes.push_back(o.planes[1]); }),
              HasSubstr("layer 1 part 0 side V: expected rows [0, 16) once, given two planes"));
  EXPECT_THAT(message([](Object& o) { o.planes[1] = *slice_rows(o.planes[1], 0, 15); }),
              HasSubstr("layer 1 part 0 side V: expected rows [0, 16), given [0, 15)"));
  EXPECT_THAT(message([](Object& o) { o.tokens.pop_back(); }),
              HasSubstr("tokens of a block: expected 16, given 15"));
  EXPECT_THAT(message([](Object& o) { o.first_token = 8; }),
              HasSubstr("no multiple of block_tokens"));
  EXPECT_THAT(message([](Object& o) {
                o.extras.push_back({16, {}});
              }),
              HasSubstr("extra at position 16"));
  EXPECT_THAT(message([](Object& o) {
                o.states.push_back({0, 0, {}});
              }),
              HasSubstr("state of layer 0 part 0: the model has no such part"));
  EXPECT_THAT(message([](Object& o) { o.name.kind = ObjectKind::tail; }),
              HasSubstr("tokens of a tail or snapshot"));
}

}  // namespace
}  // namespace kv
