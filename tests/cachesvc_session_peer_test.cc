// SessionPeer by itself: who comes in, what it may do, and that it leaves nothing behind.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "cachesvc/daemon/peer_memory.h"
#include "cachesvc/daemon/session_peer.h"
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

constexpr uint32_t kServiceUser = 900, kNobody = 902;

// Two ends of a connection of this process with itself.
struct Ends {
  Ends() { KV_CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) == 0); }
  ~Ends() {
    for (int fd : fds) ::close(fd);
  }
  Ends(const Ends&) = delete;  // owns the descriptors
  Ends& operator=(const Ends&) = delete;
  int fds[2] = {-1, -1};
};

class SessionPeerTest : public ::testing::Test {
 protected:
  static HelloRequest hello(const std::string& ns) {
    HelloRequest request;
    request.ns = ns;
    return request;
  }
  uint64_t stat(const std::string& name) {
    const auto stats = core_.stats(soon());
    for (const auto& [key, value] : stats->values) {
      if (key == name) return value;
    }
    ADD_FAILURE() << name;
    return 0;
  }

  Ends ends_;
  Stepped core_{small_options()};
  ServerOptions options_;
  std::vector<std::string> lines_;
  EventLog events_{
      [this](const LineKind&, uint64_t, const std::string& text) { lines_.push_back(text); }};
  CodingLog codings_{events_};
  Gate gate_{options_, kServiceUser};
  SessionHost host_{*core_.core,
                    options_,
                    nullptr,
                    codings_,
                    gate_,
                    events_,
                    std::make_shared<Turns>(core_.loop.get_executor()),
                    std::make_shared<MappingPeers>(core_.loop.get_executor())};
  SessionPeer peer_{host_, ends_.fds[0], kServiceUser};
};

using SessionPeerDeathTest = SessionPeerTest;

TEST_F(SessionPeerTest, HasASessionOfTheCoreFromItsHelloUntilItLeaves) {
  EXPECT_EQ(peer_.session(), 0u);
  EXPECT_EQ(peer_.ns(), "");
  ASSERT_TRUE(peer_.enter(hello("chat")).ok());
  EXPECT_NE(peer_.session(), 0u);
  EXPECT_EQ(peer_.ns(), "chat");
  EXPECT_EQ(stat("sessions"), 2u) << "and that of the test";
  peer_.leave({});
  EXPECT_EQ(stat("sessions"), 1u);
}

TEST_F(SessionPeerTest, WhoSpeaksNoVersionOfTheServiceStaysOut) {
  HelloRequest older = hello("chat"), newer = hello("chat");
  older.min_version = older.max_version = kProtocolVersion - 1;
  newer.min_version = newer.max_version = kProtocolVersion + 1;
  for (const HelloRequest& request : {older, newer}) {
    EXPECT_EQ(peer_.enter(request).code(), StatusCode::unsupported);
  }
  EXPECT_EQ(peer_.session(), 0u);
  newer.min_version = kProtocolVersion;
  EXPECT_TRUE(peer_.enter(newer).ok());
}

TEST_F(SessionPeerTest, WhomTheGateRefusesIsCountedAndTold) {
  SessionPeer stranger(host_, ends_.fds[0], kNobody);
  EXPECT_EQ(stranger.enter(hello("chat")).code(), StatusCode::denied);
  EXPECT_EQ(stranger.session(), 0u);
  EXPECT_EQ(stranger.ns(), "");
  EXPECT_EQ(stat("denied"), 1u);
  EXPECT_EQ(lines_.size(), 1u);
}

TEST_F(SessionPeerTest, SoManyHandOverMemoryAndAPlaceIsFreeWhenOneLeaves) {
  host_.memory_peers = kMaxMemoryPeers - 1;
  SessionPeer second(host_, ends_.fds[0], kServiceUser);
  EXPECT_TRUE(peer_.may_offer_memory());
  EXPECT_FALSE(second.may_offer_memory());
  second.leave({});
  EXPECT_EQ(host_.memory_peers, kMaxMemoryPeers) << "it had no place";
  peer_.leave({});
  EXPECT_EQ(host_.memory_peers, kMaxMemoryPeers - 1);
}

TEST_F(SessionPeerTest, MapsIfTheKernelKnowsItsProcess) {
  EXPECT_TRUE(peer_.may_map());
  int pipe[2];
  ASSERT_EQ(::pipe2(pipe, O_CLOEXEC), 0);
  SessionPeer unknown(host_, pipe[0], kServiceUser);
  EXPECT_FALSE(unknown.may_map());
  unknown.leave({});
  for (int fd : pipe) ::close(fd);
}

TEST_F(SessionPeerDeathTest, EntersOnce) {
  ASSERT_TRUE(peer_.enter(hello("chat")).ok());
  EXPECT_DEATH((void)peer_.enter(hello("chat")), "broken invariant");
}

}  // namespace
}  // namespace kv
