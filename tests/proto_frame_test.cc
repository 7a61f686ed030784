// The frame parser: whole frames out of any cut of the stream, typed errors, memory that follows
// what has arrived.
#include <gtest/gtest.h>

#include "proto/checksum.h"
#include "tests/support/proto_testing.h"

namespace kv {
namespace {

using testing::feed;
using testing::flatten;
using testing::Random;

std::vector<uint8_t> header_bytes(const FrameHeader& header) {
  auto bytes = encode_frame_header(header);
  return {bytes.begin(), bytes.end()};
}

// Frames of the stream when it is fed in pieces whose sizes `next_size` gives.
template <typename NextSize>
std::vector<Frame> parse(std::span<const uint8_t> stream, NextSize next_size, Status& status) {
  FrameParser parser;
  parser.set_greeted(true);
  std::vector<Frame> frames;
  while (!stream.empty()) {
    auto piece = stream.first(std::min<size_t>(stream.size(), next_size()));
    auto taken = feed(parser, piece);
    if (!taken.ok()) {
      status = taken.status();
      return frames;
    }
    stream = stream.subspan(*taken);
    while (auto frame = parser.next()) frames.push_back(std::move(*frame));
    if (!parser.error().ok()) {
      status = parser.error();
      return frames;
    }
  }
  return frames;
}

TEST(FrameHeader, HasItsLayout) {
  FrameHeader h{kProtocolVersion, FrameType::fetch, 0x1122334455667788, 0x99, 0};
  auto b = header_bytes(h);
  ASSERT_EQ(b.size(), 32u);
  EXPECT_EQ(std::string(b.begin(), b.begin() + 4), "KVC1");
  EXPECT_EQ(b[4], 2);
  EXPECT_EQ(b[6], 0x08);
  EXPECT_EQ(b[8], 0x88);
  EXPECT_EQ(b[15], 0x11);
  EXPECT_EQ(b[16], 0x99);
  uint32_t crc = crc32c(std::span(b).first(28));
  EXPECT_EQ(b[28] | b[29] << 8 | b[30] << 16 | static_cast<uint32_t>(b[31]) << 24, crc);
  auto back = decode_frame_header(std::span(b).first<32>());
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, h);
}

TEST(FrameHeader, EveryFlippedBitIsATypedError) {
  auto good = header_bytes({kProtocolVersion, FrameType::put, 5, 77, 0});
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    auto h = decode_frame_header(std::span(bad).first<32>());
    ASSERT_FALSE(h.ok()) << "bit " << bit;
    EXPECT_EQ(h.status().code(), StatusCode::corruption) << "bit " << bit;
  }
}

TEST(FrameHeader, OtherVersionAndFlagsAreRefusedByName) {
  auto version = decode_frame_header(encode_frame_header({1, FrameType::hello, 1, 0, 0}));
  EXPECT_EQ(version.status().code(), StatusCode::unsupported);
  EXPECT_NE(version.status().message().find("version 1, expected 2"), std::string::npos);
  auto flags =
      decode_frame_header(encode_frame_header({kProtocolVersion, FrameType::hello, 1, 0, 4}));
  EXPECT_EQ(flags.status().code(), StatusCode::unsupported);
}

TEST(FrameParser, AnyCutOfTheStreamGivesTheSameFrames) {
  std::vector<uint8_t> stream;
  auto samples = testing::sample_frames();
  for (int repeat = 0; repeat < 20; ++repeat) {
    for (const auto& [name, bytes] : samples)
      stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  for (uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    Status status;
    uint64_t largest = uint64_t{1} << (seed % 18);  // seed 0: byte by byte
    auto frames = parse(
        stream, [&] { return 1 + random.below(largest); }, status);
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_EQ(frames.size(), samples.size() * 20);
    auto it = samples.begin();
    for (const auto& frame : frames) {
      auto head = header_bytes(frame.header);
      std::vector<uint8_t> again(head.begin(), head.end());
      again.insert(again.end(), frame.body.span().begin(), frame.body.span().end());
      ASSERT_EQ(again, it->second) << it->first;
      if (++it == samples.end()) it = samples.begin();
    }
  }
}

TEST(FrameParser, LengthsOverTheirCapAllocateNothing) {
  for (uint64_t length : {uint64_t{4} << 30, UINT64_MAX, kMaxObjectFrameBytes + 1}) {
    FrameParser parser;
    parser.set_greeted(true);
    auto taken = feed(parser, header_bytes({kProtocolVersion, FrameType::put, 1, length, 0}));
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.status().code(), StatusCode::invalid_argument);
    EXPECT_NE(taken.status().message().find(std::to_string(length)), std::string::npos);
    EXPECT_EQ(parser.body_capacity(), 0u);
    EXPECT_EQ(parser.commit(0).code(), StatusCode::invalid_argument) << "an error stays";
    EXPECT_TRUE(parser.prepare().empty());
  }
}

TEST(FrameParser, CapsDifferBeforeAndAfterTheHello) {
  auto header = header_bytes({kProtocolVersion, FrameType::fetch, 1, kMaxHelloBytes + 1, 0});
  FrameParser fresh;
  EXPECT_FALSE(feed(fresh, header).ok());
  FrameParser greeted;
  greeted.set_greeted(true);
  EXPECT_TRUE(feed(greeted, header).ok());
  for (auto type : {FrameType::commit, FrameType::hello, static_cast<FrameType>(0x1234)}) {
    FrameParser at_cap, over;
    at_cap.set_greeted(true);
    over.set_greeted(true);
    EXPECT_TRUE(feed(at_cap, header_bytes({kProtocolVersion, type, 1, kMaxControlBytes, 0})).ok());
    EXPECT_FALSE(
        feed(over, header_bytes({kProtocolVersion, type, 1, kMaxControlBytes + 1, 0})).ok());
  }
}

TEST(FrameParser, MemoryFollowsWhatHasArrived) {
  FrameParser parser;
  parser.set_greeted(true);
  constexpr uint64_t kClaim = 900u << 20;
  ASSERT_TRUE(
      feed(parser, header_bytes({kProtocolVersion, FrameType::fetch_object, 1, kClaim, 0})).ok());
  uint64_t arrived = 0;
  for (int i = 0; i < 200; ++i) {
    auto to = parser.prepare();
    EXPECT_LE(parser.body_capacity(), arrived + kBodyStepBytes);
    size_t n = std::min<size_t>(to.size(), 100'000);
    std::fill_n(to.begin(), n, static_cast<uint8_t>(i));
    arrived += n;
    ASSERT_TRUE(parser.commit(n).ok());
  }
  EXPECT_FALSE(parser.next().has_value());
}

TEST(FrameParser, LargeBodiesArriveWhole) {
  Random random(3);
  auto body = random.bytes(11u << 20);
  auto stream = header_bytes({kProtocolVersion, FrameType::put, 8, body.size(), 0});
  stream.insert(stream.end(), body.begin(), body.end());
  Status status;
  auto frames = parse(
      stream, [&] { return 1 + random.below(3u << 20); }, status);
  ASSERT_TRUE(status.ok());
  ASSERT_EQ(frames.size(), 1u);
  EXPECT_TRUE(std::equal(body.begin(), body.end(), frames[0].body.span().begin(),
                         frames[0].body.span().end()));
}

TEST(FrameParser, PutsWaitForAnExternalBufferOrAreSkipped) {
  auto put = testing::sample_frames()["put"];
  auto stats = testing::sample_frames()["stats"];
  std::vector<uint8_t> stream = put;
  stream.insert(stream.end(), put.begin(), put.end());
  stream.insert(stream.end(), stats.begin(), stats.end());
  for (size_t step : {size_t{1}, size_t{7}, stream.size()}) {
    FrameParser parser;
    parser.set_greeted(true);
    parser.set_external_puts(true);
    std::vector<uint8_t> buffer;
    std::vector<FrameType> types;
    int puts = 0;
    for (std::span<const uint8_t> left = stream; !left.empty();) {
      auto taken = feed(parser, left.first(std::min(step, left.size())));
      ASSERT_TRUE(taken.ok());
      left = left.subspan(*taken);
      bool busy = true;
      while (busy) {
        busy = false;
        if (const FrameHeader* header = parser.awaiting()) {
          EXPECT_TRUE(parser.prepare().empty());
          if (puts++ == 0) {
            buffer.resize(header->length);
            parser.use_buffer(buffer);
          } else {
            parser.skip_body();
          }
          busy = true;
        }
        while (auto frame = parser.next()) {
          types.push_back(frame->header.type);
          EXPECT_TRUE(frame->header.type != FrameType::put || frame->body.empty());
          busy = true;
        }
      }
    }
    EXPECT_EQ(types, (std::vector{FrameType::put, FrameType::put, FrameType::stats}));
    EXPECT_TRUE(
        std::equal(buffer.begin(), buffer.end(), put.begin() + kFrameHeaderBytes, put.end()));
    EXPECT_TRUE(parser.at_boundary());
    EXPECT_EQ(parser.body_capacity(), 0u);
  }
}

TEST(Gather, GivesEveryByteFromAnyOffset) {
  Random random(5);
  OutFrame frame{nullptr, random.bytes(40), {}};
  for (size_t n : {3u, 0u, 17u, 1u}) frame.pieces.push_back(Bytes::owning(random.bytes(n)));
  auto whole = flatten(frame);
  ASSERT_EQ(frame.bytes(), whole.size());
  for (size_t at = 0; at < whole.size(); ++at) {
    std::vector<uint8_t> got;
    for (uint64_t from = at; from < whole.size();) {
      iovec pieces[2];
      size_t n = gather(frame, from, pieces, 2);
      ASSERT_GT(n, 0u);
      for (size_t i = 0; i < n; ++i) {
        auto* p = static_cast<const uint8_t*>(pieces[i].iov_base);
        got.insert(got.end(), p, p + pieces[i].iov_len);
        from += pieces[i].iov_len;
      }
    }
    ASSERT_EQ(got, std::vector<uint8_t>(whole.begin() + static_cast<long>(at), whole.end()));
  }
}

}  // namespace
}  // namespace kv
