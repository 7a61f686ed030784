// RESP2: commands out of any cut of the stream, Redis' own errors, bounds, and the bytes of
// replies.
#include "tests/support/proto_resp.h"

#include <gtest/gtest.h>

namespace kv {
namespace {

using testing::parse_resp;
using testing::Random;
using testing::RespRun;
using Words = std::vector<std::string>;

std::string error_of(const std::string& stream, bool newcomer = false) {
  return parse_resp(
             stream, [] { return 7; }, newcomer)
      .error.message();
}

TEST(RespParser, ReadsArraysAndInlineCommands) {
  const std::string stream =
      "*2\r\n$3\r\nGET\r\n$5\r\na\r\nbc\r\n"
      "PING\r\n"
      "*0\r\n*-1\r\n\r\n  \r\n"
      "set \"a b\" 'c\"d' \"\\x41\\n\\\"\"\n"
      "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$1\r\n\n\r\n"
      "echo '' 'it\\'s' a\"b c\"\r\n";
  RespRun run = parse_resp(stream, [] { return 1; });
  ASSERT_TRUE(run.error.ok()) << run.error.to_string();
  EXPECT_EQ(run.commands, (std::vector<Words>{{"GET", "a\r\nbc"},
                                              {"PING"},
                                              {"set", "a b", "c\"d", "A\n\""},
                                              {"SET", "", "\n"},
                                              {"echo", "", "it's", "ab c"}}));
  EXPECT_TRUE(run.at_boundary);
}

TEST(RespParser, AnyCutGivesTheSameCommands) {
  Random random(1);
  std::string stream;
  std::vector<Words> expected;
  for (int i = 0; i < 300; ++i) {
    Words words(1 + random.below(5));
    for (auto& w : words) w = random.text(30);
    if (random.below(10) == 0) words.back() = random.text(60'000);
    stream += testing::resp_command(words);
    expected.push_back(std::move(words));
  }
  for (uint64_t largest : {1, 2, 3, 100, 20'000, 1'000'000}) {
    RespRun run = parse_resp(stream, [&] { return 1 + random.below(largest); });
    ASSERT_TRUE(run.error.ok()) << largest << ": " << run.error.to_string();
    EXPECT_TRUE(run.commands == expected) << largest;
  }
}

TEST(RespParser, WhatIsNotKeptGoesToABufferOrIsDropped) {
  const std::string large(kMaxRespKeptBytes, 'x');
  const std::string stream =
      testing::resp_command({"SET", "key", large, "EX"}) + testing::resp_command({"GET", "key"});
  RespRun taken = parse_resp(stream, [] { return 1000; });
  ASSERT_EQ(taken.commands.size(), 2u);
  EXPECT_EQ(taken.commands[0], (Words{"SET", "key", large, "EX"}));
  EXPECT_EQ(taken.buffered, 1u);
  RespRun dropped = parse_resp(
      stream, [] { return 1000; }, false, false);
  ASSERT_EQ(dropped.commands.size(), 2u);
  EXPECT_EQ(dropped.commands[0], (Words{"SET", "key", "", "EX"}));
  EXPECT_EQ(dropped.dropped, 1u);
  EXPECT_EQ(dropped.commands[1], (Words{"GET", "key"}));
}

// Redis 7's own words.
TEST(RespParser, ErrorsAreThoseOfRedis) {
  EXPECT_EQ(error_of("*x\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*1025\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*01\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*\r\n"), "Protocol error: invalid multibulk length");
  EXPECT_EQ(error_of("*1\r\n:1\r\n"), "Protocol error: expected '$', got ':'");
  EXPECT_EQ(error_of("*1\r\n\r\n"), "Protocol error: expected '$', got ' '");
  for (const char* length : {"-1", "-2", "x", "", "536870913", "99999999999999999999", "+1"}) {
    EXPECT_EQ(error_of("*1\r\n$" + std::string(length) + "\r\n"),
              "Protocol error: invalid bulk length")
        << length;
  }
  EXPECT_EQ(error_of("get \"a\r\n"), "Protocol error: unbalanced quotes in request");
  EXPECT_EQ(error_of("get \"a\"b\r\n"), "Protocol error: unbalanced quotes in request");
  EXPECT_EQ(error_of(std::string(kMaxRespLineBytes, 'a')),
            "Protocol error: too big inline request");
  EXPECT_EQ(error_of("*" + std::string(kMaxRespLineBytes, '1')),
            "Protocol error: too big mbulk count string");
  EXPECT_EQ(error_of("*1\r\n$" + std::string(kMaxRespLineBytes, '1')),
            "Protocol error: too big bulk count string");
  EXPECT_EQ(error_of("*11\r\n", true), "Protocol error: unauthenticated multibulk length");
  EXPECT_EQ(error_of("*1\r\n$16385\r\n", true), "Protocol error: unauthenticated bulk length");
  EXPECT_EQ(error_of("*1\r\n$4\r\nPINGxx"), "Protocol error: expected the end of an argument");
}

TEST(RespParser, AnErrorStays) {
  RespRun run = parse_resp("*x\r\n*1\r\n$4\r\nPING\r\n", [] { return 3; });
  EXPECT_FALSE(run.error.ok());
  EXPECT_TRUE(run.commands.empty());
  EXPECT_TRUE(run.failed_for_good);
}

TEST(RespParser, EveryTruncationIsNoCommandAndNoError) {
  const std::string stream = testing::resp_command({"SET", "key", "a value\r\n"});
  for (size_t length = 0; length < stream.size(); ++length) {
    RespRun run = parse_resp(stream.substr(0, length), [] { return 5; });
    EXPECT_TRUE(run.error.ok()) << length;
    EXPECT_TRUE(run.commands.empty()) << length;
    EXPECT_EQ(run.at_boundary, length == 0) << length;
  }
}

TEST(RespWriter, GoldenBytes) {
  RespWriter out;
  out.simple("OK");
  out.error("ERR unknown command 'a\r\nb'");
  out.integer(0);
  out.integer(1234567);
  out.bulk("a\r\nb");
  out.bulk("");
  out.null();
  out.array(2);
  out.bulk_head(9);
  const auto bytes = out.take();
  EXPECT_EQ(std::string(bytes.begin(), bytes.end()),
            "+OK\r\n-ERR unknown command 'a  b'\r\n:0\r\n:1234567\r\n$4\r\na\r\nb\r\n$0\r\n\r\n"
            "$-1\r\n*2\r\n$9\r\n");
}

}  // namespace
}  // namespace kv
