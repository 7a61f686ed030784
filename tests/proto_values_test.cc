// Status, bytes and checksums: known vectors, short reads, caps.
#include <gtest/gtest.h>

#include "proto/bytes.h"
#include "proto/checksum.h"
#include "proto/status.h"

namespace kv {
namespace {

std::span<const uint8_t> bytes_of(const char* s) {
  return {reinterpret_cast<const uint8_t*>(s), std::strlen(s)};
}

TEST(Checksum, KnownVectors) {
  EXPECT_EQ(crc32c(bytes_of("123456789")), 0xe3069283u);
  EXPECT_EQ(sha256(bytes_of("abc")).hex(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Xxh128 empty = xxh3_128({});  // XXH3_128bits of no bytes, xxHash's own test vector
  EXPECT_EQ(empty.high, 0x99aa06d3014798d8ull);
  EXPECT_EQ(empty.low, 0x6001c324468d497full);
}

TEST(Checksum, StreamEqualsOneShotHoweverItIsCut) {
  std::vector<uint8_t> data(5000);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint8_t>(i * 31 + i / 7);
  for (size_t cut : {size_t{0}, size_t{1}, size_t{255}, size_t{1024}, data.size()}) {
    Xxh128Stream stream;
    stream.update(std::span(data).first(cut));
    stream.update(std::span(data).subspan(cut));
    EXPECT_EQ(stream.digest(), xxh3_128(data)) << cut;
  }
}

TEST(Checksum, IdsAsHexRoundTripAndRefuseAnythingElse) {
  Id id = sha256(bytes_of("x"));
  auto back = id_from_hex(id.hex());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, id);
  EXPECT_FALSE(id_from_hex("").ok());
  EXPECT_FALSE(id_from_hex(id.hex() + "0").ok());
  std::string upper = id.hex();
  upper[3] = 'G';
  EXPECT_FALSE(id_from_hex(upper).ok());
}

TEST(Bytes, ReaderReturnsWhatWriterWrote) {
  ByteWriter out;
  out.u8(1);
  out.u16(0x0203);
  out.u32(0x04050607);
  out.u64(0x08090a0b0c0d0e0full);
  out.i32(-5);
  out.f32(1.5f);
  out.string("name");
  std::vector<int32_t> values{1, -2, 3};
  out.array(std::span<const int32_t>(values));
  EXPECT_EQ(out.span()[1], 0x03) << "little-endian";
  ByteReader in(out.span());
  EXPECT_EQ(in.u8(), 1);
  EXPECT_EQ(in.u16(), 0x0203);
  EXPECT_EQ(in.u32(), 0x04050607u);
  EXPECT_EQ(in.u64(), 0x08090a0b0c0d0e0full);
  EXPECT_EQ(in.i32(), -5);
  EXPECT_EQ(in.f32(), 1.5f);
  EXPECT_EQ(in.string(4), "name");
  EXPECT_EQ(in.array<int32_t>(3), values);
  EXPECT_TRUE(in.done());
}

TEST(Bytes, ReaderStaysFailedAndAllocatesNothingForALie) {
  ByteWriter out;
  out.u32(0xffffffff);  // a length of 4 GiB with nothing behind it
  for (int form = 0; form < 2; ++form) {
    ByteReader in(out.span());
    if (form == 0) {
      EXPECT_TRUE(in.blob(0xffffffff).empty());
    } else {
      EXPECT_TRUE(in.array<int32_t>(0xffffffff).empty());
    }
    EXPECT_TRUE(in.failed());
    EXPECT_EQ(in.u64(), 0u);
    EXPECT_FALSE(in.done());
  }
  ByteWriter over;
  over.string("five!");
  ByteReader in(over.span());
  EXPECT_EQ(in.string(4), "");
  EXPECT_TRUE(in.failed()) << "over its cap though the bytes are there";
}

TEST(Bytes, SliceSharesTheOwner) {
  Bytes slice;
  {
    Bytes whole = Bytes::adopt({1, 2, 3, 4});
    slice = whole.slice(1, 2);
    EXPECT_EQ(slice.data(), whole.data() + 1);
  }
  EXPECT_EQ(slice.span()[1], 3);
  EXPECT_DEATH(slice.slice(1, 2), "broken invariant");
}

Result<int> half(int value) {
  if (value % 2 != 0) return invalid_argument("value " + std::to_string(value) + " is odd");
  return value / 2;
}
Status quarter(int value, int* out) {
  KV_ASSIGN_OR_RETURN(int h, half(value));
  KV_ASSIGN_OR_RETURN(*out, half(h));
  return {};
}

TEST(Status, MacrosPassErrorsOn) {
  int out = 0;
  EXPECT_TRUE(quarter(8, &out).ok());
  EXPECT_EQ(out, 2);
  Status s = quarter(6, &out);
  EXPECT_EQ(s.to_string(), "invalid_argument: value 3 is odd");
  EXPECT_EQ(Result<int>(Status()).status().code(), StatusCode::internal);
}

}  // namespace
}  // namespace kv
