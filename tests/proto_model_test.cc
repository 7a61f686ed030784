// ModelSpec: what is encoded comes back, bad bytes are refused, and refusals name the place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "proto/demand.h"
#include "proto/model.h"
#include "tests/support/proto_specs.h"

namespace kv {
namespace {

using namespace kv::testing;
using ::testing::HasSubstr;

PartSpec full_part() {
  PartSpec p;
  p.heads = 2;
  p.k_dim = p.v_dim = 64;
  return p;
}
ModelSpec two_layers() {
  ModelSpec m{"m", Id{{1}}, {}};
  m.layers = {{{full_part()}}, {{full_part()}}};
  return m;
}

TEST(Model, DecodesToWhatWasEncoded) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed);
    ModelSpec m = random_model(rng);
    ASSERT_TRUE(validate(m, 16).ok()) << "seed " << seed << ": " << validate(m, 16).to_string();
    ByteWriter w;
    encode(m, w);
    ByteReader r(w.span());
    auto back = decode_model(r);
    ASSERT_TRUE(back.ok() && r.done()) << "seed " << seed;
    EXPECT_EQ(*back, m) << "seed " << seed;
  }
}

TEST(Model, EveryTruncationIsRefused) {
  Rng rng(1);
  ByteWriter w;
  encode(random_model(rng), w);
  for (size_t n = 0; n < w.size(); ++n) {
    std::vector<uint8_t> cut(w.span().begin(), w.span().begin() + static_cast<ptrdiff_t>(n));
    cut.shrink_to_fit();
    ByteReader r(cut);
    EXPECT_EQ(decode_model(r).status().code(), StatusCode::corruption) << n;
  }
}

// Whatever decodes must encode to the same bytes again: no flip is silently repaired.
TEST(Model, EveryFlippedByteIsRefusedOrAValueOfItsOwn) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Rng rng(seed);
    ByteWriter w;
    encode(random_model(rng), w);
    for (size_t i = 0; i < w.size() * 8; ++i) {
      std::vector<uint8_t> bytes(w.span().begin(), w.span().end());
      bytes[i / 8] ^= static_cast<uint8_t>(1u << i % 8);
      ByteReader r(bytes);
      auto m = decode_model(r);
      if (!m.ok()) continue;
      (void)validate(*m, 16);
      (void)fp16_bytes_per_token(*m);
      ByteWriter again;
      encode(*m, again);
      std::vector<uint8_t> read(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(r.at()));
      EXPECT_EQ(again.bytes(), read) << "seed " << seed << " bit " << i;
    }
  }
}

TEST(Model, CountsOverTheirLimitsAreRefusedBeforeTheyAreRead) {
  ByteWriter w;
  w.string("m");
  w.raw(Id{{1}}.bytes);
  w.u32(kMaxLayers + 1);
  ByteReader r(w.span());
  EXPECT_EQ(decode_model(r).status().code(), StatusCode::corruption);
}

TEST(Model, RefusalsNameLayerPartFieldAndLimit) {
  auto message = [](auto change) {
    ModelSpec m = two_layers();
    change(m);
    return validate(m, 16).to_string();
  };
  auto part = [](ModelSpec& m) -> PartSpec& { return m.layers[1].parts[0]; };
  EXPECT_EQ(message([](ModelSpec&) {}), "ok");
  EXPECT_THAT(message([&](ModelSpec& m) { part(m).heads = 2000; }),
              HasSubstr("invalid_argument: layer 1 part 0: heads 2000 outside 1..1024"));
  EXPECT_THAT(message([&](ModelSpec& m) { part(m).k_dim = 0; }), HasSubstr("k_dim 0"));
  EXPECT_THAT(message([&](ModelSpec& m) { part(m).kind = PartKind::window; }),
              HasSubstr("layer 1 part 0: window 0"));
  EXPECT_THAT(message([&](ModelSpec& m) { part(m).kind = PartKind::chunk; }),
              HasSubstr("layer 1 part 0: chunk 0"));
  EXPECT_THAT(message([&](ModelSpec& m) { part(m).kind = PartKind::pooled, part(m).rate = 3; }),
              HasSubstr("unsupported: layer 1 part 0: pooled rate 3 does not divide"));
  EXPECT_THAT(message([&](ModelSpec& m) { part(m).label.assign(kMaxLabelBytes + 1, 'x'); }),
              HasSubstr("layer 1 part 0: label"));
  EXPECT_THAT(message([](ModelSpec& m) { m.name.assign(kMaxModelNameBytes + 1, 'x'); }),
              HasSubstr("model name over 256 bytes"));
  EXPECT_THAT(message([](ModelSpec& m) { m.fingerprint = {}; }), HasSubstr("fingerprint"));
  EXPECT_THAT(message([](ModelSpec& m) { m.layers.clear(); }), HasSubstr("layers 0 outside"));
  EXPECT_THAT(message([](ModelSpec& m) { m.layers.assign(2, {}); }), HasSubstr("no parts"));
  EXPECT_THAT(message([](ModelSpec& m) { m.layers[0].parts.assign(9, full_part()); }),
              HasSubstr("layer 0: more than 8 parts"));
}

TEST(Model, PartGroupsAreNumberedByFirstAppearance) {
  ModelSpec m = two_layers();
  PartSpec window = full_part();
  window.kind = PartKind::window;
  window.window = 32;
  m.layers = {{{window}}, {{full_part(), window}}, {}, {{full_part()}}};
  auto groups = part_groups(m);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].spec, window);
  ASSERT_EQ(groups[0].members.size(), 2u);
  EXPECT_EQ(groups[0].members[1].layer, 1);
  EXPECT_EQ(groups[0].members[1].part, 1);
  ASSERT_EQ(groups[1].members.size(), 2u);
  EXPECT_EQ(groups[1].members[1].layer, 3);
}

// Each part beside all groups found before it: slow for thousands of them, and plainly right.
std::vector<PartGroup> groups_one_by_one(const ModelSpec& model) {
  std::vector<PartGroup> groups;
  for (size_t l = 0; l < model.layers.size(); ++l) {
    for (size_t p = 0; p < model.layers[l].parts.size(); ++p) {
      const PartSpec& part = model.layers[l].parts[p];
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const PartGroup& g) { return g.spec == part; });
      if (group == groups.end()) group = groups.insert(group, {part, {}});
      group->members.push_back({static_cast<uint16_t>(l), static_cast<uint16_t>(p)});
    }
  }
  return groups;
}

TEST(Model, PartGroupsAreThoseFoundOneByOne) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    // Parts that differ in one field or in none, in every order.
    std::vector<PartSpec> parts(pick(rng, 1, 4));
    for (auto& part : parts) part = random_part(rng);
    for (uint32_t more = pick(rng, 0, 12); more > 0; --more) {
      PartSpec part = parts[rng() % parts.size()];
      uint32_t* numbers[] = {&part.heads, &part.k_dim, &part.v_dim, &part.window,
                             &part.keep,  &part.chunk, &part.rate};
      const uint32_t field = pick(rng, 0, 11);
      if (field < 7) *numbers[field] += 1;
      if (field == 7) part.label += "x";
      if (field == 8) part.overlap = !part.overlap;
      if (field == 9) part.dtype = part.dtype == DType::f32 ? DType::f16 : DType::f32;
      if (field == 10) part.snapshot = static_cast<SnapshotPlace>(1 - int(part.snapshot));
      if (field == 11) part.kind = part.kind == PartKind::full ? PartKind::latent : PartKind::full;
      parts.push_back(part);
    }
    ModelSpec m = two_layers();
    m.layers.resize(pick(rng, 1, 40));
    for (auto& layer : m.layers) {
      layer.parts.clear();
      for (uint32_t n = pick(rng, 0, 8); n > 0; --n)
        layer.parts.push_back(parts[rng() % parts.size()]);
    }
    auto expected = groups_one_by_one(m), found = part_groups(m);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t g = 0; g < found.size(); ++g) {
      EXPECT_EQ(found[g].spec, expected[g].spec) << "group " << g;
      ASSERT_EQ(found[g].members.size(), expected[g].members.size()) << "group " << g;
      for (size_t i = 0; i < found[g].members.size(); ++i) {
        EXPECT_EQ(found[g].members[i].layer, expected[g].members[i].layer) << "group " << g;
        EXPECT_EQ(found[g].members[i].part, expected[g].members[i].part) << "group " << g;
      }
    }
  }
}

TEST(Model, Fp16BytesCountEveryRowOnce) {
  ModelSpec m = two_layers();
  EXPECT_EQ(fp16_bytes_per_token(m), 2u * 2 * 2 * 64 * 2);  // layers, sides, heads, dim, bytes
  m.layers[1].parts[0].kind = PartKind::pooled;
  m.layers[1].parts[0].rate = 4;
  EXPECT_EQ(fp16_bytes_per_token(m), 512u + 128u);
  m.layers[1].parts[0].rate = 0;
  EXPECT_GT(fp16_bytes_per_token(m), 0u) << "an unchecked model from a file must not trap";
}

TEST(Model, Fp16RowsAreThoseThatACacheHolds) {
  ModelSpec m = two_layers();
  const uint64_t row = 2 * 2 * 64 * 2;  // sides, heads, dim, bytes
  EXPECT_EQ(fp16_rows_bytes(m, 100), 2 * 100 * row);
  PartSpec& part = m.layers[1].parts[0];
  part.kind = PartKind::window;
  part.window = 31;
  EXPECT_EQ(fp16_rows_bytes(m, 20), 2 * 20 * row) << "a window that is not full yet";
  EXPECT_EQ(fp16_rows_bytes(m, 100), (100 + 30) * row);
  part.keep = 4;
  EXPECT_EQ(fp16_rows_bytes(m, 100), (100 + 34) * row);
  part.kind = PartKind::chunk;
  part.chunk = 30;
  EXPECT_EQ(fp16_rows_bytes(m, 100), (100 + 10) * row);
  part.kind = PartKind::pooled;
  part.rate = 8;
  EXPECT_EQ(fp16_rows_bytes(m, 100), 100 * row + 12 * row);
}

}  // namespace
}  // namespace kv
