// Status and Result: a failure travels to the caller with its code and message, never as "ok".
#include <gtest/gtest.h>

#include <memory>
#include <set>

#include "proto/status.h"

namespace kv {
namespace {

TEST(Status, IsOkUntilItHasACode) {
  EXPECT_TRUE(Status().ok());
  Status s = invalid_argument("heads 0");
  EXPECT_FALSE(s.ok());
  EXPECT_EQ(s.code(), StatusCode::invalid_argument);
  EXPECT_EQ(s.message(), "heads 0");
  EXPECT_EQ(s.to_string(), "invalid_argument: heads 0");
}

TEST(Status, EveryCodeHasItsOwnNameAndFixedNumber) {
  std::set<std::string> names;
  for (uint8_t code = 0; code <= 11; ++code) names.insert(to_string(StatusCode{code}));
  EXPECT_EQ(names.size(), 12u) << "the wire's codes 0…11";
  EXPECT_EQ(static_cast<int>(StatusCode::corruption), 3);
  EXPECT_EQ(static_cast<int>(StatusCode::unavailable), 11);
  EXPECT_FALSE(names.count(to_string(StatusCode{200}))) << "an unknown code is no known one";
}

TEST(Result, AnOkStatusWithoutAValueIsOurBugAndNotSuccess) {
  Result<int> r{Status()};
  EXPECT_FALSE(r.ok());
  EXPECT_EQ(r.status().code(), StatusCode::internal);
}

TEST(Result, CarriesMoveOnlyValues) {
  Result<std::unique_ptr<int>> r{std::make_unique<int>(7)};
  ASSERT_TRUE(r.ok());
  std::unique_ptr<int> taken = std::move(r).value();
  EXPECT_EQ(*taken, 7);
}

Result<int> half(int v) {
  if (v % 2) return invalid_argument("odd");
  return v / 2;
}
Result<int> quarter(int v) {
  KV_ASSIGN_OR_RETURN(int h, half(v));
  KV_ASSIGN_OR_RETURN(int q, half(h));
  return q;
}
Status both(int a, int b) {
  KV_RETURN_IF_ERROR(half(a).status());
  KV_RETURN_IF_ERROR(half(b).status());
  return {};
}

TEST(Macros, ReturnTheFirstErrorUnchanged) {
  EXPECT_EQ(*quarter(8), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
  EXPECT_TRUE(both(2, 4).ok());
  EXPECT_EQ(both(2, 3).message(), "odd");
}

TEST(CheckDeathTest, ABrokenInvariantEndsTheProcessInEveryBuild) {
  EXPECT_DEATH(KV_CHECK(1 == 2), "broken invariant: 1 == 2");
}

}  // namespace
}  // namespace kv
