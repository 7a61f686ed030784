// Replies by itself: one frame for each request, within its limit, with room while it is unsent.
#include <sys/socket.h>
#include <unistd.h>

#include "cachesvc/daemon/fetch_frames.h"
#include "cachesvc/daemon/replies.h"
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

constexpr uint64_t kId = 7;
constexpr size_t kNeedBytes = 16;  // of a frame

// A connection whose socket holds a few kilobytes.
class RepliesTest : public ::testing::Test, FrameSender::Host, Connection {
 protected:
  RepliesTest() {
    int ends[2];
    KV_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    const int bytes = 8 << 10;
    ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    socket_.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
    peer_ = ends[1];
    parser_.set_greeted(true);
  }
  ~RepliesTest() override { ::close(peer_); }

  static InFrame request() {
    InFrame in;
    in.frame.header.request = kId;
    return in;
  }
  // The answer to a reserve, of so many bytes and some more.
  void reply(size_t bytes) {
    ReserveReply reserved;
    reserved.needs.resize(bytes / kNeedBytes + 1);
    replies_.of<ReserveReply>(request(), FrameType::reserve_ok)(std::move(reserved));
  }
  // The next frame, which is of the request.
  Frame receive() {
    while (true) {
      if (auto frame = parser_.next()) {
        EXPECT_EQ(frame->header.request, kId);
        return std::move(*frame);
      }
      auto to = parser_.prepare();
      const ssize_t n = ::recv(peer_, to.data(), to.size(), 0);
      if (n > 0) {
        KV_CHECK(parser_.commit(static_cast<size_t>(n)).ok());
        continue;
      }
      KV_CHECK(!sender_.empty());  // else nothing comes any more
      core_.run();
    }
  }
  StatusCode receive_error() {
    const Frame frame = receive();
    EXPECT_EQ(frame.header.type, FrameType::error);
    return decode_reply<ErrorReply>(FrameType::error, frame.body.span())->code;
  }
  uint64_t room() const { return core_.core->pool()->used_bytes(ChargeKind::reply); }

  Stepped core_{small_options()};
  FrameSender::Socket socket_{core_.loop};
  FrameSender sender_{*this, socket_};
  const std::string ns_ = "test";
  Replies replies_{*this, *core_.core, ns_};
  FrameParser parser_;
  int peer_ = -1;
  bool closed_ = false;

 private:
  std::shared_ptr<void> keep() override { return nullptr; }
  bool closed() const override { return closed_; }
  FrameSender& out() override { return sender_; }
  void take_turn(std::function<void()> turn) override {
    boost::asio::post(core_.loop, std::move(turn));
  }
  bool others_wait() const override { return false; }
  void reply_sent() override {}
  void turn_over() override {}
  void close(std::string_view why) override { ADD_FAILURE() << why; }
};

TEST_F(RepliesTest, AReplyAnErrorAndASuccessEachUnderTheirRequest) {
  reply(1);
  const Frame frame = receive();
  EXPECT_EQ(frame.body.size(), sizeof(uint64_t) + sizeof(uint32_t) + kNeedBytes);
  auto reserved = decode_reply<ReserveReply>(frame.header.type, frame.body.span());
  ASSERT_TRUE(reserved.ok()) << reserved.status().to_string();
  EXPECT_EQ(reserved->needs.size(), 1u);
  replies_.of<ReserveReply>(request(), FrameType::reserve_ok)(Status(StatusCode::not_found, "it"));
  EXPECT_EQ(receive_error(), StatusCode::not_found);
  replies_.of_field<EraseCount, uint64_t>(request(), FrameType::erase_ok)(3);
  EXPECT_EQ(decode_reply<EraseCount>(FrameType::erase_ok, receive().body.span())->objects, 3u);
  replies_.acknowledge(kId, FrameType::put_ok)(Status());
  EXPECT_EQ(receive().header.type, FrameType::put_ok);
  replies_.acknowledge(kId, FrameType::put_ok)(Status(StatusCode::busy, "now"));
  EXPECT_EQ(receive_error(), StatusCode::busy);
  EXPECT_EQ(room(), 0u) << "all of them were short";
}

TEST_F(RepliesTest, ALongOneHasRoomUntilItIsSent) {
  reply(4 * kMaxUnchargedReplyBytes);
  ASSERT_FALSE(sender_.empty()) << "the socket holds less";
  EXPECT_GE(room(), 4 * kMaxUnchargedReplyBytes);
  EXPECT_EQ(receive().header.type, FrameType::reserve_ok);
  core_.run();
  EXPECT_EQ(room(), 0u);
}

TEST_F(RepliesTest, WithoutRoomItIsBusyAndAShortOneGoes) {
  RamPool& pool = *core_.core->pool();
  auto taken = pool.try_charge(ChargeKind::model, pool.free_bytes());
  ASSERT_TRUE(taken);
  reply(2 * kMaxUnchargedReplyBytes);
  EXPECT_EQ(receive_error(), StatusCode::busy);
  reply(1);
  EXPECT_EQ(receive().header.type, FrameType::reserve_ok);
  taken.reset();
  reply(2 * kMaxUnchargedReplyBytes);
  EXPECT_EQ(receive().header.type, FrameType::reserve_ok);
}

TEST_F(RepliesTest, OneThatIsOverItsLimitIsAnErrorInItsPlace) {
  reply(kMaxQueryBytes + 1);
  EXPECT_EQ(receive_error(), StatusCode::resource_exhausted);
  EXPECT_EQ(room(), 0u);
}

TEST_F(RepliesTest, AClosedConnectionIsToldNothing) {
  closed_ = true;
  reply(1);
  replies_.acknowledge(kId, FrameType::put_ok)(Status());
  EXPECT_TRUE(sender_.empty());
}

}  // namespace
}  // namespace kv
