// Fetches of a part of a hit: the same rows as of the whole hit, whatever was selected.
#include "proto/selection.h"
#include "tests/support/cachesvc_testing.h"

namespace kv {
namespace {

ModelSpec mixed_model() {
  return model_of({{{full_part(4)}},
                   {{full_part(4), window_part(24, 2)}},
                   {{full_part(1)}},
                   {{state_part(SnapshotPlace::checkpoint)}}});
}

// The same plane of the whole hit, with the selection's heads.
void expect_cut(const Plane& got, const Object& whole, const Selection& selection) {
  for (const Plane& p : whole.planes) {
    if (p.layer != got.layer || p.part != got.part || p.side != got.side) continue;
    Plane expected = shape_of_heads(p, selection);
    std::vector<uint8_t> bytes(plane_bytes(expected));
    copy_heads(p, p.bytes.span(), selection, bytes);
    expected.bytes = Bytes::owning(std::move(bytes));
    EXPECT_EQ(got, expected);
    return;
  }
  ADD_FAILURE() << "a plane that the whole hit has not";
}

// Planes and states of an object that the selection takes.
size_t expected_pieces(const Object& object, const Selection& selection) {
  size_t count = 0;
  for (const Plane& p : object.planes) count += selection.has(p.layer, p.part);
  for (const StateBlob& s : object.states) count += selection.has(s.layer, s.part);
  return count;
}

class SelectionTest : public ::testing::Test {
 protected:
  FetchReply fetch(const Selection& selection, FetchForm form) {
    FetchRequest request;
    request.model = bench_.opened.model;
    request.query.tokens = plus_one(tokens_);
    request.form = form;
    request.selection = selection;
    auto reply = bench_.client.fetch(request, soon());
    EXPECT_TRUE(reply.ok()) << reply.status().to_string();
    return reply.ok() ? std::move(*reply) : FetchReply();
  }
  // Every object that the selection has something of, and nothing else.
  void expect_part_of(const FetchReply& whole, const FetchReply& got, const Selection& selection) {
    EXPECT_EQ(got.tokens, whole.tokens);
    size_t at = 0;
    const auto& objects = got.lease.prefix().objects;
    for (const FetchedObject& from : whole.lease.prefix().objects) {
      const size_t pieces = expected_pieces(*from.object, selection);
      if (pieces == 0 || all_rows_below(*from.object, bench_.model, selection)) continue;
      ASSERT_LT(at, objects.size());
      const FetchedObject& to = objects[at++];
      EXPECT_EQ(to.object->name, from.object->name);
      EXPECT_EQ(to.end_token, from.end_token);
      EXPECT_EQ(to.object->planes.size() + to.object->states.size(), pieces);
      for (const Plane& p : to.object->planes) expect_cut(p, *from.object, selection);
    }
    EXPECT_EQ(at, objects.size());
  }

  std::mt19937 rng_{11};
  const std::vector<Token> tokens_ = random_tokens(rng_, 70);
  std::unique_ptr<TieredCache> cache_ = open_cache(small_options());
  Bench bench_ = Bench::open(*cache_, mixed_model(), make_profile(mixed_model(), 4));
};

TEST_F(SelectionTest, APartOfAHitIsThatPartOfTheWhole) {
  ASSERT_TRUE(bench_.store(tokens_).ok());
  auto range = [&](uint16_t most) -> Selection::Range {
    if (rng_() % 3 == 0) return {};
    const auto first = static_cast<uint16_t>(rng_() % most);
    if (rng_() % 3 == 0) return {first, Selection::kToEnd};
    return {first, static_cast<uint16_t>(first + 1 + rng_() % (most - first))};
  };
  for (FetchForm form : {FetchForm::stored, FetchForm::f16, FetchForm::f32}) {
    const FetchReply whole = fetch({}, form);
    ASSERT_EQ(whole.tokens, 70u);
    for (int i = 0; i < 40; ++i) {
      const Selection selection{static_cast<uint32_t>(rng_() % 80), range(4), range(2), range(4)};
      SCOPED_TRACE(testing::Message()
                   << to_string(form == FetchForm::stored ? DType::f16 : DType::f32) << " from "
                   << selection.from_token << " layers " << selection.layers.first << ".."
                   << selection.layers.end << " heads " << selection.heads.first << ".."
                   << selection.heads.end);
      expect_part_of(whole, fetch(selection, form), selection);
      if (HasFailure()) return;
    }
  }
}

TEST_F(SelectionTest, WhoHasAllRowsGetsStatesAlone) {
  ASSERT_TRUE(bench_.store(tokens_).ok());
  const FetchReply got = fetch({70, {}, {}, {}}, FetchForm::stored);
  ASSERT_EQ(got.tokens, 70u);
  ASSERT_EQ(got.lease.prefix().objects.size(), 1u);
  EXPECT_EQ(got.lease.prefix().objects[0].object->states.size(), 1u);
}

TEST_F(SelectionTest, ASelectionOutsideTheModelIsRefused) {
  FetchRequest request;
  request.model = bench_.opened.model;
  request.query.tokens = tokens_;
  request.selection.layers = {2, 9};
  const Status refused = bench_.client.fetch(request, soon()).status();
  EXPECT_EQ(refused.code(), StatusCode::invalid_argument);
  EXPECT_NE(refused.message().find("layers [2, 9)"), std::string::npos) << refused.message();
}

TEST_F(SelectionTest, SomeHeadsTakeTheRamOfSomeHeads) {
  ASSERT_TRUE(bench_.store(tokens_).ok());
  auto reply_bytes = [&](const Selection& selection) {
    const FetchReply got = fetch(selection, FetchForm::f32);
    return bench_.stat("ram_reply_bytes");
  };
  const uint64_t whole = reply_bytes({});
  EXPECT_LT(reply_bytes({0, {0, 1}, {}, {0, 1}}), whole);
  EXPECT_EQ(bench_.stat("ram_reply_bytes"), 0u);
}

// A copy would take the time of a memcpy, and room for the hit a second time.
TEST(FetchForms, RowsThatAreStoredAsTheyAreAskedForAreLeased) {
  const ModelSpec model = model_of({{{full_part(4)}}, {{full_part(2)}}});
  auto cache = open_cache(small_options());
  Bench bench = Bench::open(*cache, model, make_profile(model, 0));
  std::mt19937 rng(3);
  const std::vector<Token> tokens = random_tokens(rng, 70);
  ASSERT_TRUE(bench.store(tokens).ok());
  const auto stored = bench.fetch(plus_one(tokens), FetchForm::stored);
  const auto same = bench.fetch(plus_one(tokens), FetchForm::f16);
  const auto other = bench.fetch(plus_one(tokens), FetchForm::f32);
  ASSERT_TRUE(stored.ok() && same.ok() && other.ok());
  const auto &a = stored->lease.prefix().objects, &b = same->lease.prefix().objects,
             &c = other->lease.prefix().objects;
  ASSERT_GT(a.size(), 1u);
  ASSERT_EQ(b.size(), a.size());
  ASSERT_EQ(c.size(), a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(b[i].object, a[i].object);
    EXPECT_NE(c[i].object, a[i].object);
    for (const Plane& p : b[i].object->planes) EXPECT_EQ(p.dtype, DType::f16);
  }
}

}  // namespace
}  // namespace kv
