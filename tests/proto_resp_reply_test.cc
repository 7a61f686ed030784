// RESP2 replies: whole ones out of any cut of the stream, places, bounds.
#include "tests/support/proto_resp_reply.h"

#include <gtest/gtest.h>

#include "tests/support/proto_testing.h"

namespace kv {
namespace {

using testing::parse_replies;
using testing::Random;
using testing::RespReplyRun;

RespReplyRun replies_of(const std::string& stream) {
  return parse_replies(stream, [] { return 7; });
}

TEST(RespReply, EveryTypeIsRead) {
  RespReplyRun run = replies_of(
      "+OK\r\n-MOVED 1 a:2\r\n:-12\r\n$3\r\na\r\n\r\n$-1\r\n*-1\r\n*0\r\n"
      "*3\r\n:1\r\n*2\r\n$0\r\n\r\n*1\r\n+x\r\n$-1\r\n");
  ASSERT_TRUE(run.error.ok()) << run.error.to_string();
  ASSERT_EQ(run.replies.size(), 8u);
  EXPECT_EQ(run.replies[0].text, "OK");
  EXPECT_EQ(run.replies[1].type, RespType::error);
  EXPECT_EQ(run.replies[1].text, "MOVED 1 a:2");
  EXPECT_EQ(run.replies[2].integer, -12);
  EXPECT_EQ(run.replies[3].text, "a\r\n");
  EXPECT_EQ(run.replies[4].type, RespType::null);
  EXPECT_EQ(run.replies[5].type, RespType::null);
  EXPECT_EQ(run.replies[6].type, RespType::array);
  ASSERT_EQ(run.replies[7].items.size(), 3u);
  EXPECT_EQ(run.replies[7].items[1].items[1].items[0].text, "x");
  EXPECT_EQ(run.replies[7].items[2].type, RespType::null);
  EXPECT_TRUE(run.at_boundary);
}

RespReply random_reply(Random& random, size_t depth) {
  RespReply r;
  r.type = static_cast<RespType>(random.below(depth < 4 ? 6 : 5));
  if (r.type == RespType::simple || r.type == RespType::error) r.text = "some text";
  if (r.type == RespType::integer) r.integer = static_cast<int64_t>(random.below(1000)) - 500;
  if (r.type == RespType::bulk) r.text = random.text(random.below(8) == 0 ? 40'000 : 30);
  if (r.type == RespType::array) {
    for (uint64_t n = random.below(5); n > 0; --n) {
      r.items.push_back(random_reply(random, depth + 1));
    }
  }
  return r;
}

TEST(RespReply, AnyCutGivesTheSameRepliesPlacedOrKept) {
  Random random(3);
  std::string stream;
  std::vector<std::string> expected;
  for (int i = 0; i < 300; ++i) {
    expected.push_back(testing::reply_text(random_reply(random, 0)));
    stream += expected.back();
  }
  for (size_t place : {0, 40'000}) {
    for (uint64_t largest : {1, 2, 3, 100, 20'000, 1'000'000}) {
      RespReplyRun run = parse_replies(
          stream, [&] { return 1 + random.below(largest); }, place);
      ASSERT_TRUE(run.error.ok()) << largest << ": " << run.error.to_string();
      ASSERT_EQ(run.replies.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(testing::reply_text(run.replies[i], run.places[i]), expected[i]);
      }
    }
  }
}

TEST(RespReply, ABulkLongerThanItsPlaceIsDroppedAndTheNextReplyIsRead) {
  RespReplyRun run = parse_replies(
      "$5\r\nabcde\r\n$4\r\nabcd\r\n", [] { return 1; }, 4);
  ASSERT_EQ(run.replies.size(), 2u);
  EXPECT_FALSE(run.replies[0].placed);
  EXPECT_EQ(run.replies[0].integer, 5);
  EXPECT_EQ(run.replies[0].text, "");
  EXPECT_EQ(run.places[1], "abcd");
}

TEST(RespReply, WhatIsNoReplyEndsTheStreamForGood) {
  std::string nested;
  for (size_t i = 0; i <= kMaxRespReplyDepth; ++i) nested += "*1\r\n";
  const std::string full = "$" + std::to_string(kMaxRespReplyBytes) + "\r\n";
  for (const std::string& bad :
       {std::string("x\r\n"), std::string("\r\n"), std::string("+a\n"), std::string("$x\r\n"),
        std::string("$-2\r\n"), std::string("$536870913\r\n"), std::string("*65537\r\n"),
        std::string("*-2\r\n"), std::string(":\r\n"), std::string("$1\r\nabc"), nested,
        "+" + std::string(kMaxRespLineBytes, 'a'), std::string("*2\r\n:1\r\n$4194305\r\n"),
        "*2\r\n" + full + std::string(kMaxRespReplyBytes, 'a') + "\r\n$1\r\n"}) {
    RespReplyRun run = parse_replies(bad, [] { return 50'000; });
    EXPECT_EQ(run.error.code(), StatusCode::corruption) << bad.substr(0, 20);
    EXPECT_TRUE(run.failed_for_good) << bad.substr(0, 20);
  }
}

TEST(RespReply, ItemsOfAllArraysOfAReplyAreCountedTogether) {
  std::string stream = "*2\r\n";
  for (int half = 0; half < 2; ++half) {
    stream += "*32768\r\n";
    for (int i = 0; i < 32768; ++i) stream += ":1\r\n";
  }
  EXPECT_EQ(replies_of(stream).error.code(), StatusCode::corruption);
}

}  // namespace
}  // namespace kv
