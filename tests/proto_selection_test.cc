// Selections: the ranges that a model has, and heads copied out of planes, against an oracle that
// goes value by value.
#include <gtest/gtest.h>

#include <random>

#include "proto/selection.h"
#include "tests/support/proto_testing.h"

namespace kv {
namespace {

ModelSpec model_of_parts() {
  ModelSpec model = testing::sample_model();
  PartSpec full;
  full.heads = 4;
  full.k_dim = full.v_dim = 8;
  PartSpec latent;
  latent.kind = PartKind::latent;
  latent.heads = 1;
  latent.k_dim = 8;
  PartSpec pooled = latent;
  pooled.kind = PartKind::pooled;
  pooled.rate = 4;
  model.layers = {{{full}}, {{full, latent}}, {{pooled}}};
  return model;
}

Selection of(Selection::Range layers, Selection::Range parts, Selection::Range heads) {
  return {0, layers, parts, heads};
}
constexpr Selection::Range kAll{};

TEST(Selection, EverythingIsTheDefault) {
  EXPECT_TRUE(validate(Selection{}, model_of_parts()).ok());
  EXPECT_TRUE(Selection{}.has(2, 1));
  EXPECT_EQ(selected_heads({}, 4), 4u);
}

TEST(Selection, RangesOutsideTheModelAreRefusedByName) {
  const ModelSpec model = model_of_parts();
  EXPECT_TRUE(validate(of({1, 3}, {1, 2}, {1, 4}), model).ok());
  EXPECT_TRUE(validate(of({2, 3}, kAll, {7, 9}), model).ok()) << "no part there has several heads";
  const std::pair<Selection, const char*> refused[] = {
      {of({1, 4}, kAll, kAll), "layers"},
      {of({3, Selection::kToEnd}, kAll, kAll), "layers"},
      {of({2, 2}, kAll, kAll), "layers"},
      {of({2, 1}, kAll, kAll), "layers"},
      {of(kAll, {0, 3}, kAll), "parts"},
      {of(kAll, kAll, {0, 5}), "heads"},
      {of(kAll, kAll, {4, Selection::kToEnd}), "heads"}};
  for (const auto& [selection, name] : refused) {
    const Status s = validate(selection, model);
    EXPECT_EQ(s.code(), StatusCode::invalid_argument);
    EXPECT_NE(s.message().find(name), std::string::npos) << s.message();
  }
}

TEST(Selection, PartsShareTheirBytes) {
  auto object = std::make_shared<Object>(testing::sample_object());
  const size_t planes = object->planes.size();
  ASSERT_GT(planes, 0u);
  const uint16_t layer = object->planes[0].layer;
  auto one = select_parts(object, of({layer, static_cast<uint16_t>(layer + 1)}, kAll, kAll));
  ASSERT_TRUE(one);
  EXPECT_EQ(one->planes[0].bytes.data(), object->planes[0].bytes.data());
  for (const Plane& p : one->planes) EXPECT_EQ(p.layer, layer);
  for (const StateBlob& s : one->states) EXPECT_EQ(s.layer, layer);
  EXPECT_FALSE(select_parts(object, of({1000, 1001}, kAll, kAll)));
  EXPECT_EQ(select_parts(object, {}), object);
}

TEST(Selection, RowsBelowAreTokensNotRows) {
  const ModelSpec model = model_of_parts();
  Object object;
  Plane rows;
  rows.layer = 2;  // pooled: a row is four tokens
  rows.heads = 1;
  rows.dim = 8;
  rows.first_row = 4;
  rows.runs = {{RunForm::exact, 4}};
  object.planes = {rows};
  Selection selection;
  selection.from_token = 31;
  EXPECT_FALSE(all_rows_below(object, model, selection));
  selection.from_token = 32;
  EXPECT_TRUE(all_rows_below(object, model, selection));
  object.states = {{0, 0, {}}};
  EXPECT_FALSE(all_rows_below(object, model, selection)) << "a state is needed whatever is there";
}

// The byte offset of what a head has of a row, and how many bytes: codes, or the values.
struct Piece {
  uint64_t at, bytes;
};
std::vector<Piece> pieces_of(const Plane& p, uint32_t head) {
  std::vector<Piece> out;
  uint64_t begin = 0;
  for (const RowRun& run : p.runs) {
    for (uint32_t row = 0; row < run.rows; ++row) {
      if (run.form == RunForm::exact) {
        const uint64_t value = uint64_t{p.dim} * dtype_bytes(p.dtype);
        out.push_back({begin + (uint64_t{row} * p.heads + head) * value, value});
        continue;
      }
      const uint64_t code = code_bytes(p.dim, p.bits);
      const uint64_t scales = begin + uint64_t{p.heads} * run.rows * code;
      out.push_back({begin + (uint64_t{head} * run.rows + row) * code, code});
      out.push_back({scales + (uint64_t{head} * run.rows + row) * 2, 2});
    }
    begin += run_bytes(p, run.form, run.rows);
  }
  return out;
}

TEST(Selection, HeadsAreThoseOfEveryRow) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 rng(seed);
    Plane p;
    p.dtype = rng() % 2 ? DType::f16 : DType::f32;
    p.heads = 1 + rng() % 6;
    p.dim = 8 * (1 + rng() % 3);
    p.bits = static_cast<uint8_t>(2 + rng() % 3);
    for (uint32_t i = 0, runs = rng() % 4; i < runs; ++i) {
      p.runs.push_back(
          {rng() % 2 ? RunForm::codes : RunForm::exact, static_cast<uint32_t>(1 + rng() % 5)});
    }
    std::vector<uint8_t> bytes(plane_bytes(p));
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(rng());
    p.bytes = Bytes::copy_of(bytes);
    const auto first = static_cast<uint16_t>(rng() % p.heads);
    const auto end = static_cast<uint16_t>(first + 1 + rng() % (p.heads - first));
    const Selection selection = of(kAll, kAll, {first, end});
    Plane cut = shape_of_heads(p, selection);
    ASSERT_EQ(cut.heads, p.heads == 1 ? 1u : end - first);
    std::vector<uint8_t> out(plane_bytes(cut));
    copy_heads(p, p.bytes.span(), selection, out);
    for (uint32_t h = 0; h < cut.heads; ++h) {
      const auto from = pieces_of(p, p.heads == 1 ? 0 : first + h), to = pieces_of(cut, h);
      ASSERT_EQ(from.size(), to.size());
      for (size_t i = 0; i < from.size(); ++i) {
        ASSERT_EQ(from[i].bytes, to[i].bytes);
        ASSERT_EQ(std::memcmp(&bytes[from[i].at], &out[to[i].at], to[i].bytes), 0) << h << " " << i;
      }
    }
  }
}

}  // namespace
}  // namespace kv
