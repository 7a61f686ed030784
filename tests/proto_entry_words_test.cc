// Labels: which bytes are text for people.
#include <gtest/gtest.h>

#include "proto/entry_words.h"
#include "proto/limits.h"

namespace kv {
namespace {

TEST(Label, IsPrintableUtf8OfALimitedLength) {
  for (const char* good : {"", "chat 17", "é", "\u20ac", "\U0001f600", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(check_label(good).ok()) << good;
  }
  for (const char* bad : {"\x80", "\xc0\xaf", "\xc1\xbf", "\xe0\x80\x80", "\xed\xa0\x80",
                          "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xc3",
                          "\xe2\x82", "a\xe2\x82z", "a\tb", "\x1b[31m", "\x7f", "\xc2\x85"}) {
    EXPECT_EQ(check_label(bad).code(), StatusCode::invalid_argument) << bad;
  }
  EXPECT_TRUE(check_label(std::string(kMaxLabelBytes, 'a')).ok());
  EXPECT_FALSE(check_label(std::string(kMaxLabelBytes + 1, 'a')).ok());
  EXPECT_FALSE(check_label(std::string("a\0b", 3)).ok());
}

}  // namespace
}  // namespace kv
