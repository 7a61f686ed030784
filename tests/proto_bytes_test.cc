// Bytes, ByteWriter and ByteReader: what was written is read back, and no input reads past its end.
#include <gtest/gtest.h>

#include <functional>

#include "proto/bytes.h"

namespace kv {
namespace {

std::vector<uint8_t> sample() {
  ByteWriter w;
  w.u8(0xab);
  w.u16(0x1234);
  w.u32(0xdeadbeef);
  w.u64(0x0102030405060708);
  w.i32(-5);
  w.f32(1.5f);
  w.string("hello");
  std::vector<int32_t> values = {1, -2, 3};
  w.array(std::span<const int32_t>(values));
  return w.take();
}

// Reads the sample; true if every field came back right.
bool read_sample(ByteReader& r) {
  bool ok = r.u8() == 0xab;
  ok &= r.u16() == 0x1234;
  ok &= r.u32() == 0xdeadbeef;
  ok &= r.u64() == 0x0102030405060708;
  ok &= r.i32() == -5;
  ok &= r.f32() == 1.5f;
  ok &= r.string(16) == "hello";
  ok &= r.array<int32_t>(16) == std::vector<int32_t>{1, -2, 3};
  return ok;
}

TEST(ByteReader, ReadsBackWhatWasWritten) {
  auto bytes = sample();
  ByteReader r(bytes);
  EXPECT_TRUE(read_sample(r));
  EXPECT_TRUE(r.done());
  bytes.push_back(0);
  ByteReader longer(bytes);
  EXPECT_TRUE(read_sample(longer));
  EXPECT_FALSE(longer.failed());
  EXPECT_FALSE(longer.done()) << "a byte is left over";
  EXPECT_EQ(longer.left(), 1u);
}

TEST(ByteWriter, IsLittleEndian) {
  ByteWriter w;
  w.u32(0x11223344);
  EXPECT_EQ(w.take(), (std::vector<uint8_t>{0x44, 0x33, 0x22, 0x11}));
}

TEST(ByteReader, EveryTruncationFailsAndStaysFailed) {
  auto bytes = sample();
  for (size_t n = 0; n < bytes.size(); ++n) {
    std::vector<uint8_t> cut(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(n));
    cut.shrink_to_fit();  // ASan sees any byte read past the end
    ByteReader r(cut);
    EXPECT_FALSE(read_sample(r)) << n;
    EXPECT_TRUE(r.failed()) << n;
    EXPECT_EQ(r.u64(), 0u) << "a failed reader returns zeros";
    EXPECT_TRUE(r.raw(0).empty());
    EXPECT_TRUE(r.failed());
    EXPECT_FALSE(r.done());
  }
}

TEST(ByteReader, LengthsAreCappedBeforeAnythingIsAllocated) {
  ByteWriter w;
  w.u32(0xffffffff);
  w.u64(0);
  const std::vector<uint8_t> bytes = w.take();
  const std::function<void(ByteReader&)> reads[] = {
      [](ByteReader& r) { EXPECT_TRUE(r.blob(SIZE_MAX).empty()); },
      [](ByteReader& r) { EXPECT_TRUE(r.string(SIZE_MAX).empty()); },
      [](ByteReader& r) { EXPECT_TRUE(r.array<uint64_t>(SIZE_MAX).empty()); },
      [](ByteReader& r) { EXPECT_TRUE(r.array<uint64_t>(3).empty()); },
  };
  for (const auto& read : reads) {
    ByteReader r(bytes);
    read(r);
    EXPECT_TRUE(r.failed());
  }
  ByteWriter two;
  two.string("ab");
  ByteReader over(two.span());
  EXPECT_EQ(over.string(1), "");
  EXPECT_TRUE(over.failed()) << "a length over the caller's cap, though the bytes are there";
}

TEST(Bytes, SlicesShareTheirOwnerAndOutliveTheWhole) {
  Bytes part;
  {
    Bytes whole = Bytes::owning({1, 2, 3, 4, 5});
    part = whole.slice(1, 3);
    EXPECT_EQ(part.data(), whole.data() + 1);
  }
  EXPECT_EQ(part, Bytes::owning({2, 3, 4}));
  EXPECT_FALSE(part == Bytes::owning({2, 3, 5}));
  EXPECT_FALSE(part == Bytes::owning({2, 3}));
  EXPECT_EQ(part.slice(3, 0), Bytes());
  EXPECT_DEATH((void)part.slice(2, 2), "broken invariant");
}

TEST(Bytes, ALengthWithoutBytesEqualsOnlyItsLike) {
  Bytes length_only(nullptr, nullptr, 4);  // as decode_header leaves a state's bytes
  EXPECT_EQ(length_only, length_only);
  EXPECT_FALSE(length_only == Bytes::owning({0, 0, 0, 0}));
}

}  // namespace
}  // namespace kv
