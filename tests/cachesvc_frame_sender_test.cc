// FrameSender by itself: how much of a long reply goes in one step of the loop.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <vector>

#include "cachesvc/daemon/frame_sender.h"

namespace kv {
namespace {

// A connection whose turns the test gives.
class FrameSenderTest : public ::testing::Test, FrameSender::Host {
 protected:
  FrameSenderTest() {
    int ends[2];
    KV_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
    const int bytes = 4 << 20;
    ::setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    socket_.assign(boost::asio::generic::stream_protocol(AF_UNIX, 0), ends[0]);
    peer_ = ends[1];
  }
  ~FrameSenderTest() override { ::close(peer_); }

  // Bytes that have arrived.
  size_t arrived() const {
    int bytes = 0;
    KV_CHECK(::ioctl(peer_, FIONREAD, &bytes) == 0);
    return static_cast<size_t>(bytes);
  }
  void queue(size_t bytes) {
    OutFrame frame;
    frame.head.resize(bytes);
    sender_.queue(std::move(frame), true);
  }
  void give_turn() {
    ASSERT_EQ(turns_.size(), 1u);
    auto turn = std::move(turns_.front());
    turns_.clear();
    turn();
  }

  bool others_wait_ = false;
  int replies_ = 0;
  boost::asio::io_context loop_;
  FrameSender::Socket socket_{loop_};
  int peer_ = -1;
  std::vector<std::function<void()>> turns_;
  FrameSender sender_{*this, socket_};

 private:
  std::shared_ptr<void> keep() override { return nullptr; }
  bool closed() const override { return false; }
  void take_turn(std::function<void()> turn) override { turns_.push_back(std::move(turn)); }
  bool others_wait() const override { return others_wait_; }
  void reply_sent() override { ++replies_; }
  void turn_over() override {}
  void close(std::string_view why) override { ADD_FAILURE() << why; }
};

TEST_F(FrameSenderTest, ATurnIsShortWhileOthersWaitAndLongWhileNobodyDoes) {
  queue(2 * kLongTurnBytes);
  sender_.flush();
  EXPECT_EQ(arrived(), kLongTurnBytes);
  others_wait_ = true;
  give_turn();
  EXPECT_EQ(arrived(), kLongTurnBytes + kTurnBytes);
  EXPECT_EQ(replies_, 0);
  others_wait_ = false;
  give_turn();
  EXPECT_EQ(arrived(), 2 * kLongTurnBytes);
  EXPECT_EQ(replies_, 1);
  EXPECT_TRUE(turns_.empty()) << "nothing is left";
  EXPECT_TRUE(sender_.empty());
}

}  // namespace
}  // namespace kv
