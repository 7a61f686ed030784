// The frame parser without memory: whichever allocation fails, its memory is freed once and no
// frame is half given. A parser that has thrown is of no further use.
#include <gtest/gtest.h>

#include "proto/frame.h"
#include "proto/message.h"
#include "tests/failing_new.h"
#include "tests/proto_testing.h"

namespace kv {
namespace {

TEST(FrameParserMemory, AFrameIsWholeOrBadAllocAndItsBodyIsFreedOnce) {
  FailingNew::watched = false;
  HelloRequest hello;
  hello.ns = "a namespace of more than fifteen bytes";
  const auto bytes = testing::flatten(reply_frame(FrameType::hello, 1, hello));
  int64_t n = 1, thrown = 0;
  for (bool failed = true; failed; ++n) {
    FailingNew::arm(n, 0);
    try {
      Unwatched watched(true);
      FrameParser parser;
      (void)parser.feed(bytes);
      auto frame = parser.next();
      Unwatched own;
      ASSERT_TRUE(frame.has_value());
      auto given = decode_reply<HelloRequest>(FrameType::hello, frame->body.span());
      ASSERT_TRUE(given.ok());
      EXPECT_EQ(given->ns, hello.ns);
    } catch (const std::bad_alloc&) {
      ++thrown;
    }
    FailingNew::disarm();
    failed = FailingNew::failures() > 0;
  }
  EXPECT_GT(thrown, 1) << "parser and body";
  FailingNew::watched = true;
}

}  // namespace
}  // namespace kv
