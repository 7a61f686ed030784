// The frame parser without memory: whichever allocation fails, its memory is freed once and no
// frame is half given. A parser that has thrown is of no further use. And slabs: a take that throws
// changes nothing, and giving back needs no memory.
#include <gtest/gtest.h>

#include "memory/slab_store.h"
#include "proto/frame.h"
#include "proto/message.h"
#include "tests/support/failing_new.h"
#include "tests/support/proto_testing.h"

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

TEST(SlabStoreMemory, ATakeIsWholeOrChangesNothingAndGivingBackNeedsNone) {
  constexpr size_t kBytes = 300'000;  // with others between them: each leaves a hole
  SlabExtents extents;
  FailingNew::watched = false;
  std::vector<uint8_t*> slabs;
  int64_t thrown = 0;
  while (slabs.size() < 3 * kRegionBytes / kBytes) {
    uint64_t mapped = extents.mapped_bytes(), waiting = extents.bytes();
    uint8_t* slab = nullptr;
    for (int64_t n = 1; slab == nullptr; ++n) {
      FailingNew::arm(n, 0);
      try {
        Unwatched watched(true);
        slab = extents.take(kBytes);
      } catch (const std::bad_alloc&) {
        ++thrown;
        ASSERT_EQ(extents.mapped_bytes(), mapped);
        ASSERT_EQ(extents.bytes(), waiting);
      }
      FailingNew::disarm();
    }
    slabs.push_back(slab);
  }
  EXPECT_GT(thrown, static_cast<int64_t>(slabs.size())) << "the rest's node, and each region's";
  FailingNew::arm(1, INT64_MAX / 2);
  {
    Unwatched watched(true);
    for (size_t first : {0, 1}) {
      for (size_t i = first; i < slabs.size(); i += 2) {
        extents.give(slabs[i], kBytes);
        extents.trim(first == 0 ? 0 : kRegionBytes);
      }
    }
    extents.trim(0);
  }
  FailingNew::disarm();
  EXPECT_EQ(FailingNew::failures(), 0);
  EXPECT_EQ(extents.mapped_bytes(), 0u);
  FailingNew::watched = true;
}

}  // namespace
}  // namespace kv
