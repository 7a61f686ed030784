// Prefix::trimmed: a shorter prefix shares every plane and forgets nothing that it still needs.
#include <gtest/gtest.h>

#include "proto/client.h"

namespace kv {
namespace {

ObjectPtr object(ObjectKind kind, uint32_t first_token, uint32_t tokens) {
  auto o = std::make_shared<Object>();
  o->name.kind = kind;
  o->first_token = first_token;
  o->tokens.resize(tokens);
  return o;
}

Prefix prefix_of_20() {
  Prefix p;
  p.tokens = 20;
  p.objects = {{object(ObjectKind::block, 0, 8), 8},
               {object(ObjectKind::block, 8, 8), 16},
               {object(ObjectKind::tail, 16, 6), 20}};  // the tail holds 22: clipped at 20
  return p;
}

TEST(Prefix, TrimKeepsTheObjectsItNeedsAndClipsTheLast) {
  const Prefix whole = prefix_of_20();
  for (uint32_t n = 0; n <= 20; ++n) {
    auto cut = whole.trimmed(n);
    ASSERT_TRUE(cut.ok()) << n;
    EXPECT_EQ(cut->tokens, n);
    size_t count = n == 0 ? 0 : n <= 8 ? 1 : n <= 16 ? 2 : 3;
    ASSERT_EQ(cut->objects.size(), count) << n;
    uint32_t next = 0;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(cut->objects[i].object, whole.objects[i].object) << "shared, not copied";
      EXPECT_EQ(cut->objects[i].object->first_token, next);
      next = cut->objects[i].end_token;
    }
    EXPECT_EQ(next, n) << "rows [0, n) and no more";
  }
}

TEST(Prefix, TrimmingTwiceIsTrimmingOnce) {
  const Prefix whole = prefix_of_20();
  for (uint32_t a = 0; a <= 20; ++a) {
    for (uint32_t b = 0; b <= a; ++b) {
      auto twice = whole.trimmed(a)->trimmed(b);
      auto once = whole.trimmed(b);
      ASSERT_EQ(twice->objects.size(), once->objects.size());
      for (size_t i = 0; i < once->objects.size(); ++i) {
        EXPECT_EQ(twice->objects[i].end_token, once->objects[i].end_token);
      }
    }
  }
}

TEST(Prefix, TrimRefusesToGrow) {
  EXPECT_EQ(prefix_of_20().trimmed(21).status().code(), StatusCode::invalid_argument);
}

TEST(Prefix, TrimRefusesStateAndWindows) {
  for (auto kind : {ObjectKind::snapshot, ObjectKind::supplement}) {
    Prefix p = prefix_of_20();
    p.objects.push_back({object(kind, 16, 4), 20});
    EXPECT_EQ(p.trimmed(19).status().code(), StatusCode::unsupported) << to_string(kind);
  }
}

TEST(Names, EveryValueHasOne) {
  EXPECT_STREQ(to_string(Tier::mixed), "mixed");
  EXPECT_STREQ(to_string(HitForm::exact_tail), "exact_tail");
  EXPECT_STREQ(to_string(Durability::durable), "durable");
}

}  // namespace
}  // namespace kv
