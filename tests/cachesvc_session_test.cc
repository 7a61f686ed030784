// The beginning of a connection, and frames that are wrong: versions, the boot token, framing
// errors, bodies that can't be read.
#include "proto/memory_message.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

using testing::flatten;

// Tokens tell two starts apart: of all that the first one had told, only what is stored is left.
TEST_F(ServerTest, ABootTokenIsOfOneStart) {
  start();
  auto client = connect();
  const BootToken first = client->boot_token();
  EXPECT_NE(first, BootToken{});
  EXPECT_EQ(connect("other")->boot_token(), first);
  daemon_->kill();
  start();
  (void)client->stats(soon());  // may meet the end of its connection
  ASSERT_TRUE(client->stats(soon()).ok());
  EXPECT_NE(client->boot_token(), first);
}

TEST_F(ServerTest, TheFirstFrameMustBeAHello) {
  start();
  RawPeer early(socket());
  early.send(flatten(request_frame(FrameType::stats, 4, 0, Empty{})));
  EXPECT_EQ(early.receive_error(), StatusCode::invalid_argument);
  EXPECT_FALSE(early.receive().has_value()) << "closed";
  RawPeer unasked(socket());
  unasked.send(flatten(reply_frame(FrameType::memory_ended, 0, MemoryEnded{1})));
  EXPECT_EQ(unasked.receive_error(), StatusCode::invalid_argument) << "nor one without an answer";
  for (uint16_t version : {1, 3}) {
    RawPeer other(socket());
    HelloRequest hello;
    hello.min_version = hello.max_version = version;
    hello.ns = "raw";
    other.send(flatten(reply_frame(FrameType::hello, 1, hello)));
    EXPECT_EQ(other.receive_error(), StatusCode::unsupported) << version;
    EXPECT_FALSE(other.receive().has_value()) << "closed";
  }
  RawPeer nameless(socket());
  nameless.send(flatten(reply_frame(FrameType::hello, 1, HelloRequest{})));
  EXPECT_EQ(nameless.receive_error(), StatusCode::invalid_argument);
}

TEST_F(ServerTest, FramingErrorsAreNamedAndClose) {
  start({}, {"max_put=1048576"});
  auto closes_with = [&](const FrameHeader& header, StatusCode expected, bool flip = false) {
    RawPeer peer(socket());
    peer.hello();
    auto bytes = encode_frame_header(header);
    if (flip) bytes[9] ^= 1;
    peer.send(bytes);
    EXPECT_EQ(peer.receive_error(), expected);
    EXPECT_FALSE(peer.receive().has_value());
  };
  closes_with({kProtocolVersion, FrameType::put, 7, (1u << 20) + 1, 0},
              StatusCode::invalid_argument);
  closes_with({kProtocolVersion, FrameType::put, 7, 4ull << 30, 0}, StatusCode::invalid_argument);
  closes_with({kProtocolVersion, FrameType::stats, 7, UINT64_MAX, 0}, StatusCode::invalid_argument);
  for (uint16_t version : {1, 3}) {
    closes_with({version, FrameType::stats, 7, 4, 0}, StatusCode::unsupported);
  }
  closes_with({kProtocolVersion, FrameType::stats, 7, 4, 0}, StatusCode::corruption, true);
}

TEST_F(ServerTest, BadBodiesAndUnknownTypesLeaveTheConnectionOpen) {
  start();
  RawPeer peer(socket());
  peer.hello();
  for (auto type : {FrameType::open, FrameType::lookup, FrameType::reserve, FrameType::put,
                    FrameType::commit, FrameType::fetch, FrameType::erase, FrameType::erase_entry,
                    FrameType::hold, FrameType::renew, FrameType::release, FrameType::stats}) {
    ByteWriter body = start_frame();
    body.u16(3);
    peer.send(flatten(finish_frame(type, 5, std::move(body))));
    EXPECT_EQ(peer.receive_error(), StatusCode::corruption) << to_string(type);
  }
  peer.send(flatten(finish_frame(FrameType::put, 6, start_frame())));
  EXPECT_EQ(peer.receive_error(), StatusCode::corruption);
  for (uint16_t type : {uint16_t{0x40}, uint16_t{0x1234}, uint16_t{0x8003}}) {
    peer.send(flatten(finish_frame(static_cast<FrameType>(type), 8, start_frame())));
    EXPECT_EQ(peer.receive_error(), StatusCode::unsupported);
  }
  peer.send(flatten(request_frame(FrameType::stats, 9, 0, Empty{})));
  auto frame = peer.receive();
  ASSERT_TRUE(frame.has_value());
  EXPECT_EQ(frame->header.type, FrameType::stats_ok);
}

}  // namespace
}  // namespace kv
