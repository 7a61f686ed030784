// SocketClient against peers that misbehave: late, gone, lying, out of step. A real service behind
// it is tested in cachesvc_server_test.cc.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <future>
#include <memory>
#include <stop_token>
#include <thread>

#include "proto/socket_client.h"
#include "proto/socket_connection.h"
#include "tests/support/proto_testing.h"

namespace kv {
namespace {

using testing::flatten;

// A listening socket whose connections a script serves, one after the other, on a thread.
class ScriptedPeer {
 public:
  explicit ScriptedPeer(std::function<void(ScriptedPeer&)> script) {
    std::string pattern = ::testing::TempDir() + "kv_peer_XXXXXX";
    KV_CHECK(::mkdtemp(pattern.data()) != nullptr);
    dir_ = pattern;
    listener_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path().c_str());
    KV_CHECK(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    KV_CHECK(::listen(listener_, 8) == 0);
    thread_ = std::thread([this, script] { script(*this); });
  }
  ~ScriptedPeer() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
    if (fd_ >= 0) ::close(fd_);
    std::filesystem::remove_all(dir_);
  }
  std::string path() const { return dir_ + "/peer.sock"; }

  bool accept() {
    if (fd_ >= 0) ::close(fd_);
    parser_.reset();
    fd_ = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    parser_ = std::make_unique<FrameParser>();
    return fd_ >= 0;
  }
  // Accepts and answers the hello, granting these features.
  bool greet(uint32_t features = 0) {
    if (!accept()) return false;
    auto frame = receive();
    if (!frame) return false;
    auto hello = decode_reply<HelloRequest>(FrameType::hello, frame->body.span());
    parser_->set_greeted(true);
    HelloReply reply;
    reply.features = features;
    reply.max_in_flight = 4;
    reply.max_put_bytes = 1 << 20;
    reply.ns = hello->ns;
    send(flatten(reply_frame(FrameType::hello_ok, frame->header.request, reply)));
    return true;
  }
  std::optional<Frame> receive() {
    while (true) {
      if (auto frame = parser_->next()) return frame;
      auto to = parser_->prepare();
      ssize_t n = ::recv(fd_, to.data(), to.size(), 0);
      if (n <= 0 || !parser_->commit(static_cast<size_t>(n)).ok()) return std::nullopt;
    }
  }
  void send(const std::vector<uint8_t>& bytes) {
    (void)!::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
  // A segment that is sealed as a client wants it, and its frame.
  void announce(uint32_t segment) {
    constexpr uint64_t kBytes = 64 << 10;
    const int memory = ::memfd_create("a segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    KV_CHECK(::ftruncate(memory, kBytes) == 0 && ::fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    auto frame =
        flatten(reply_frame(FrameType::segment, 0, SegmentAnnounced{segment, kBytes, 4096}));
    iovec piece{frame.data(), frame.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))]{};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &memory, sizeof(memory));
    KV_CHECK(::sendmsg(fd_, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(frame.size()));
    ::close(memory);
  }
  void discard(size_t bytes) {
    std::vector<uint8_t> some(bytes);
    KV_CHECK(::recv(fd_, some.data(), bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes));
  }
  // Every byte until the client has closed.
  std::vector<uint8_t> rest() {
    std::vector<uint8_t> all, some(64 << 10);
    for (ssize_t n; (n = ::recv(fd_, some.data(), some.size(), 0)) > 0;) {
      all.insert(all.end(), some.begin(), some.begin() + n);
    }
    return all;
  }
  void hang_up() {
    ::close(fd_);
    fd_ = -1;
  }

 private:
  std::string dir_;
  int listener_ = -1, fd_ = -1;
  std::unique_ptr<FrameParser> parser_;
  std::thread thread_;
};

Deadline soon() { return deadline_in(std::chrono::seconds(20)); }

std::unique_ptr<SocketClient> connect(const ScriptedPeer& peer) {
  auto client = SocketClient::connect(peer.path(), "tenant", {});
  EXPECT_TRUE(client.ok()) << client.status().to_string();
  return client.ok() ? std::move(*client) : nullptr;
}

TEST(SocketClient, NobodyListens) {
  auto client = SocketClient::connect("/nowhere/at/all.sock", "tenant", {});
  EXPECT_EQ(client.status().code(), StatusCode::unavailable);
  auto longer = SocketClient::connect("/" + std::string(200, 'x'), "tenant", {});
  EXPECT_EQ(longer.status().code(), StatusCode::invalid_argument);
}

TEST(SocketClient, ARefusalAtHelloIsTheResult) {
  ScriptedPeer peer([](ScriptedPeer& p) {
    if (!p.accept()) return;
    p.send(flatten(error_frame(0, {StatusCode::busy, "too many"})));
    p.hang_up();
  });
  auto client = SocketClient::connect(peer.path(), "tenant", {});
  EXPECT_EQ(client.status().code(), StatusCode::busy) << client.status().to_string();
}

TEST(SocketClient, SilenceEndsAtTheDeadline) {
  ScriptedPeer peer([](ScriptedPeer& p) {
    while (p.greet()) {
      while (p.receive()) {
      }
    }
  });
  auto client = connect(peer);
  ASSERT_TRUE(client);
  auto begin = std::chrono::steady_clock::now();
  auto stats = client->stats(deadline_in(std::chrono::milliseconds(50)));
  EXPECT_EQ(stats.status().code(), StatusCode::deadline_exceeded) << stats.status().to_string();
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(50));
}

bool ends_with(const std::vector<uint8_t>& all, const std::vector<uint8_t>& last) {
  return all.size() >= last.size() && std::equal(last.rbegin(), last.rend(), all.rbegin());
}

// A client that closes lets its segments go in a frame; but not amid another one, whose rest that
// frame would be.
TEST(SocketClient, SaysWhatItHasUnmappedUnlessAFrameIsSentInPart) {
  const auto farewell = flatten(reply_frame(FrameType::segment_unmapped, 0, SegmentUnmapped{3}));
  for (bool amid : {false, true}) {
    std::promise<void> late, room, closed;
    std::promise<std::vector<uint8_t>> heard;
    ScriptedPeer peer([&](ScriptedPeer& p) {
      if (!p.greet(kFeatureSegments)) return;
      auto stats = p.receive();
      if (!stats) return;
      p.announce(3);
      p.send(flatten(reply_frame(FrameType::stats_ok, stats->header.request, StatsReply{})));
      late.get_future().wait();
      if (amid) p.discard(1 << 20);
      room.set_value();
      closed.get_future().wait();
      heard.set_value(p.rest());
    });
    HelloRequest hello;
    hello.ns = "tenant";
    hello.features = kFeatureSegments;
    auto connection =
        SocketConnection::open(peer.path(), hello, std::make_shared<ReplyBodies>(1 << 20), soon());
    ASSERT_TRUE(connection.ok()) << connection.status().to_string();
    SocketConnection& ours = **connection;
    const uint64_t stats = ours.next_request();
    auto answer = ours.call(request_frame(FrameType::stats, stats, 0, Empty{}), stats,
                            FrameType::stats_ok, soon());
    ASSERT_TRUE(answer.ok()) << answer.status().to_string();
    if (amid) {  // 16 MiB: more than a socket takes that nobody reads
      QueryRequest query{1, {std::vector<Token>(kMaxTokens, 7), {}}};
      const OutFrame lookup = request_frame(FrameType::lookup, ours.next_request(), 0, query);
      EXPECT_EQ(ours.send(lookup, deadline_in(std::chrono::milliseconds(50))).code(),
                StatusCode::deadline_exceeded);
    }
    late.set_value();
    room.get_future().wait();  // a farewell would find some in the socket
    *connection = nullptr;
    closed.set_value();
    EXPECT_EQ(ends_with(heard.get_future().get(), farewell), !amid);
  }
}

TEST(SocketClient, AHangUpIsUnavailableAndTheNextCallReconnects) {
  ScriptedPeer peer([](ScriptedPeer& p) {
    if (!p.greet()) return;
    p.receive();
    p.hang_up();
    if (!p.greet()) return;
    auto frame = p.receive();
    p.send(flatten(
        reply_frame(FrameType::stats_ok, frame->header.request, StatsReply{{{"busy", 3}}, {}})));
    p.receive();
  });
  auto client = connect(peer);
  ASSERT_TRUE(client);
  EXPECT_EQ(client->stats(soon()).status().code(), StatusCode::unavailable);
  auto stats = client->stats(soon());
  ASSERT_TRUE(stats.ok()) << stats.status().to_string();
  EXPECT_EQ(stats->values.at(0).second, 3u);
}

TEST(SocketClient, ModelsAreOpenedAgainOnANewConnection) {
  std::atomic<int> opens{0};
  ScriptedPeer peer([&](ScriptedPeer& p) {
    while (p.greet()) {
      uint32_t handle = 50 + static_cast<uint32_t>(++opens);
      while (auto frame = p.receive()) {
        uint64_t id = frame->header.request;
        if (frame->header.type == FrameType::open) {
          OpenReply reply{handle,
                          {"tenant", {}, {}},
                          std::make_shared<const Profile>(testing::sample_profile()),
                          {}};
          p.send(flatten(reply_frame(FrameType::open_ok, id, reply)));
        } else {
          uint32_t ms;
          auto m = decode_request<QueryRequest>(FrameType::lookup, frame->body.span(), ms);
          LookupReply reply;
          reply.tokens = m->model;  // which handle came
          p.send(flatten(reply_frame(FrameType::lookup_ok, id, reply)));
          p.hang_up();
          break;
        }
      }
    }
  });
  auto client = connect(peer);
  ASSERT_TRUE(client);
  auto opened = client->open({testing::sample_model(), nullptr, false, PrefillMode::exact}, soon());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  EXPECT_EQ(client->lookup({opened->model + 1, {}}, soon()).status().code(),
            StatusCode::invalid_argument);
  for (uint32_t connection = 1; connection <= 3; ++connection) {
    auto reply = client->lookup({opened->model, {}}, soon());
    // A hang-up may be noticed only while the call is under way.
    if (!reply.ok()) reply = client->lookup({opened->model, {}}, soon());
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    EXPECT_EQ(reply->tokens, 50u + connection);
  }
}

TEST(SocketClient, AStoreEndsWithItsConnection) {
  ScriptedPeer peer([](ScriptedPeer& p) {
    while (p.greet()) {
      while (auto frame = p.receive()) {
        uint64_t id = frame->header.request;
        if (frame->header.type == FrameType::open) {
          OpenReply reply{1,
                          {"tenant", {}, {}},
                          std::make_shared<const Profile>(testing::sample_profile()),
                          {}};
          p.send(flatten(reply_frame(FrameType::open_ok, id, reply)));
        } else if (frame->header.type == FrameType::reserve) {
          p.send(flatten(reply_frame(FrameType::reserve_ok, id, ReserveReply{77, {}})));
        } else {
          p.hang_up();
          break;
        }
      }
    }
  });
  auto client = connect(peer);
  ASSERT_TRUE(client);
  auto opened = client->open({testing::sample_model(), nullptr, false, PrefillMode::exact}, soon());
  ASSERT_TRUE(opened.ok());
  auto reserved = client->reserve({opened->model, {}, {}}, soon());
  ASSERT_TRUE(reserved.ok());
  PutRequest put{reserved->reservation, testing::sample_object(), {}};
  EXPECT_EQ(client->put(put, soon()).code(), StatusCode::unavailable);
  EXPECT_EQ(client->put(put, soon()).code(), StatusCode::not_found);
  EXPECT_EQ(client->commit(reserved->reservation, Durability::accepted, soon()).status().code(),
            StatusCode::not_found);
}

// What a peer may say wrongly in answer to a fetch, and what the client makes of it.
struct Lie {
  std::function<std::vector<OutFrame>(uint64_t)> reply;
  StatusCode expected;
};

std::vector<OutFrame> just(OutFrame frame) {
  std::vector<OutFrame> frames;
  frames.push_back(std::move(frame));
  return frames;
}

std::vector<Lie> fetch_lies() {
  auto object = std::make_shared<const Object>(testing::sample_object());
  auto header = [](uint64_t id, uint64_t object_bytes) {
    FetchHeader h;
    h.tokens = 3;
    h.objects = 1;
    h.object_bytes = object_bytes;
    return reply_frame(FrameType::fetch_header, id, h);
  };
  auto fewer_objects = [=](uint64_t id) {
    auto frames = just(header(id, 10'000));
    frames.push_back(reply_frame(FrameType::fetch_done, id, FetchDone{0}));
    return frames;
  };
  auto more_bytes = [=](uint64_t id) {
    auto frames = just(header(id, 8));
    frames.push_back(fetch_object_frame(id, {object, 3}));
    return frames;
  };
  auto other_request = [=](uint64_t id) { return just(header(id + 1, 10'000)); };
  auto other_type = [](uint64_t id) {
    return just(reply_frame(FrameType::lookup_ok, id, LookupReply{}));
  };
  auto no_frame = [](uint64_t) {
    return just(OutFrame{nullptr, std::vector<uint8_t>(100, 0x41), {}});
  };
  auto too_large = [=](uint64_t id) { return just(header(id, UINT64_MAX)); };
  auto half_a_frame = [=](uint64_t id) {
    auto frames = just(header(id, 10'000));
    frames[0].head.resize(40);
    return frames;
  };
  return {{fewer_objects, StatusCode::corruption}, {more_bytes, StatusCode::corruption},
          {other_request, StatusCode::corruption}, {other_type, StatusCode::corruption},
          {no_frame, StatusCode::corruption},      {too_large, StatusCode::resource_exhausted},
          {half_a_frame, StatusCode::unavailable}};
}

// Answers an open, then tells the lie and hangs up.
void tell(ScriptedPeer& p, const Lie& lie) {
  if (!p.greet()) return;
  while (auto frame = p.receive()) {
    uint64_t id = frame->header.request;
    if (frame->header.type == FrameType::open) {
      OpenReply reply{
          1, {"tenant", {}, {}}, std::make_shared<const Profile>(testing::sample_profile()), {}};
      p.send(flatten(reply_frame(FrameType::open_ok, id, reply)));
      continue;
    }
    for (const auto& out : lie.reply(id)) p.send(flatten(out));
    return p.hang_up();
  }
}

TEST(SocketClient, LiesInAFetchAreTypedErrors) {
  for (const Lie& lie : fetch_lies()) {
    ScriptedPeer peer([&](ScriptedPeer& p) { tell(p, lie); });
    auto client = connect(peer);
    ASSERT_TRUE(client);
    auto opened =
        client->open({testing::sample_model(), nullptr, false, PrefillMode::exact}, soon());
    ASSERT_TRUE(opened.ok());
    FetchRequest request;
    request.model = opened->model;
    auto reply = client->fetch(request, soon());
    EXPECT_EQ(reply.status().code(), lie.expected) << reply.status().to_string();
  }
}

// Answers an open, then takes lookups, `at_a_time` before it answers the last of them first; gone
// after `rounds` of that.
void answer_backwards(ScriptedPeer& p, size_t at_a_time, int rounds) {
  if (!p.greet()) return;
  auto open = p.receive();
  OpenReply opened{
      1, {"tenant", {}, {}}, std::make_shared<const Profile>(testing::sample_profile()), {}};
  p.send(flatten(reply_frame(FrameType::open_ok, open->header.request, opened)));
  for (int round = 0; round < rounds; ++round) {
    std::vector<Frame> frames;
    while (frames.size() < at_a_time) {
      auto frame = p.receive();
      if (!frame) return;
      frames.push_back(std::move(*frame));
    }
    for (auto frame = frames.rbegin(); frame != frames.rend(); ++frame) {
      uint32_t ms;
      auto m = decode_request<QueryRequest>(FrameType::lookup, frame->body.span(), ms);
      LookupReply reply;
      reply.tokens = static_cast<uint32_t>(m->query.tokens.at(0));
      p.send(flatten(reply_frame(FrameType::lookup_ok, frame->header.request, reply)));
    }
  }
  p.hang_up();
}

TEST(SocketClient, ABatchIsAnsweredInWhateverOrder) {
  ScriptedPeer peer([](ScriptedPeer& p) { answer_backwards(p, 4, 5); });
  auto client = connect(peer);
  ASSERT_TRUE(client);
  auto opened = client->open({testing::sample_model(), nullptr, false, PrefillMode::exact}, soon());
  ASSERT_TRUE(opened.ok());
  std::vector<QueryRequest> requests;
  for (Token t = 0; t < 24; ++t) requests.push_back({opened->model, {{t}, {}}, {}});
  const auto replies = client->lookup_all(requests, soon());
  for (size_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(replies[i].ok()) << replies[i].status().to_string();
    EXPECT_EQ(replies[i]->tokens, i);
  }
  for (size_t i = 20; i < 24; ++i) {  // the peer had gone
    EXPECT_EQ(replies[i].status().code(), StatusCode::unavailable);
  }
}

TEST(SocketClient, CallsOfManyThreadsShareThePool) {
  // One connection only: calls wait for each other and all are answered.
  ScriptedPeer peer([](ScriptedPeer& p) {
    if (!p.greet()) return;
    while (auto frame = p.receive()) {
      p.send(flatten(reply_frame(FrameType::stats_ok, frame->header.request,
                                 StatsReply{{{"id", frame->header.request}}, {}})));
    }
  });
  SocketClientOptions options;
  options.max_connections = 1;
  auto client = SocketClient::connect(peer.path(), "tenant", options);
  ASSERT_TRUE(client.ok());
  std::atomic<int> answered{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) answered += (*client)->stats(soon()).ok() ? 1 : 0;
    });
  }
  for (auto& t : threads) t.join();
  EXPECT_EQ(answered, 200);
}

TEST(ReplyBodies, AreUsedAgainOnceTheLastOwnerIsGone) {
  auto bodies = std::make_shared<ReplyBodies>(1u << 20);
  auto owner = bodies->take(100'000);
  uint8_t* place = owner.get();
  EXPECT_EQ(reinterpret_cast<uintptr_t>(place) % kSlabAlign, 0u);
  Bytes slice = Bytes(owner, owner.get(), 100'000).slice(10, 20);
  owner.reset();
  EXPECT_EQ(bodies->waiting_bytes(), 0u) << "a slice holds it";
  EXPECT_NE(bodies->take(100'000).get(), place);
  slice = {};
  EXPECT_EQ(bodies->waiting_bytes(), 2 * 128u * 1024) << "both, in units of 64 KiB";
  auto one = bodies->take(90'000), two = bodies->take(130'000);
  EXPECT_EQ(bodies->waiting_bytes(), 0u) << "of nearly one size";
  std::weak_ptr<ReplyBodies> gone = bodies;
  bodies.reset();
  two.reset();
  EXPECT_FALSE(gone.expired()) << "a lease outlives its client";
  one.reset();
  EXPECT_TRUE(gone.expired());
}

TEST(ReplyBodies, KeepTheNewestWithinTheirLimit) {
  constexpr uint64_t kUnit = 64u << 10;
  auto bodies = std::make_shared<ReplyBodies>(4 * kUnit);
  std::vector<std::shared_ptr<uint8_t>> held;
  for (uint64_t units : {1, 2, 2, 1, 3, 5}) held.push_back(bodies->take(units * kUnit));
  uint8_t* newest = held[4].get();
  for (size_t i = 0; i < 5; ++i) {
    held[i].reset();
    EXPECT_LE(bodies->waiting_bytes(), 4 * kUnit);
  }
  EXPECT_EQ(bodies->take(3 * kUnit).get(), newest);
  uint64_t waiting = bodies->waiting_bytes();
  EXPECT_GE(waiting, 3 * kUnit);
  held[5].reset();
  EXPECT_EQ(bodies->waiting_bytes(), waiting) << "larger than all that may wait: it alone goes";
  auto none = std::make_shared<ReplyBodies>(0);
  none->take(kUnit);
  EXPECT_EQ(none->waiting_bytes(), 0u);
}

// Takes three lookups of a batch, then their cancels, which it answers but for the first; then one
// lookup more. `taken`: once the three are here.
void answer_cancels(ScriptedPeer& p, std::promise<void>& taken) {
  if (!p.greet()) return;
  OpenReply opened{
      1, {"tenant", {}, {}}, std::make_shared<const Profile>(testing::sample_profile()), {}};
  p.send(flatten(reply_frame(FrameType::open_ok, p.receive()->header.request, opened)));
  std::vector<uint64_t> asked, cancels;
  for (int i = 0; i < 3; ++i) asked.push_back(p.receive()->header.request);
  taken.set_value();
  for (int i = 0; i < 3; ++i) {
    auto frame = p.receive();
    if (!frame || frame->header.type != FrameType::cancel || frame->header.request != 0) return;
    cancels.push_back(decode_reply<Cancel>(FrameType::cancel, frame->body.span())->request);
  }
  if (cancels != asked) return;
  auto found = [](uint64_t id) {
    return flatten(reply_frame(FrameType::lookup_ok, id, LookupReply()));
  };
  p.send(flatten(error_frame(asked[2], {StatusCode::cancelled, "cancelled"})));
  p.send(found(asked[0]));
  p.send(flatten(error_frame(asked[1], {StatusCode::cancelled, "cancelled"})));
  p.send(found(p.receive()->header.request));
}

TEST(SocketClient, AStopCancelsWhatIsOnItsWayAndSendsNoMore) {
  std::promise<void> taken;
  ScriptedPeer peer([&](ScriptedPeer& p) { answer_cancels(p, taken); });
  auto client = connect(peer);
  ASSERT_TRUE(client);
  auto opened = client->open({testing::sample_model(), nullptr, false, PrefillMode::exact}, soon());
  ASSERT_TRUE(opened.ok());
  const QueryRequest lookup{opened->model, {{1, 2, 3}, {}}, {}};
  const auto stop = std::make_unique<std::stop_source>();  // on the stack GCC 12 warns at -Og
  std::thread stopper([&] {
    taken.get_future().wait();  // one place less than the service allows is used
    stop->request_stop();
  });
  const auto replies =
      client->lookup_all(std::vector<QueryRequest>(6, lookup), {soon(), stop->get_token()});
  stopper.join();
  EXPECT_TRUE(replies[0].ok()) << "it had its answer";
  for (size_t i = 1; i < replies.size(); ++i) {
    EXPECT_EQ(replies[i].status().code(), StatusCode::cancelled) << i;
  }
  EXPECT_EQ(client->lookup(lookup, {soon(), stop->get_token()}).status().code(),
            StatusCode::cancelled)
      << "nothing is sent";
  const Deadline short_time = deadline_in(std::chrono::milliseconds(500));
  EXPECT_EQ(client->lookup_all({&lookup, 1}, {short_time, stop->get_token()})[0].status().code(),
            StatusCode::cancelled)
      << "a batch doesn't wait for what it has not sent, whose time would end the connection";
  EXPECT_TRUE(client->lookup(lookup, soon()).ok()) << "the same connection";
}

// The stop comes while the client's memory is offered: the puts behind that are not sent.
TEST(SocketClient, AStopWhileMemoryIsOfferedEndsTheBatchBehindIt) {
  const auto stop = std::make_unique<std::stop_source>();  // on the stack GCC 12 warns at -Og
  ScriptedPeer peer([&](ScriptedPeer& p) {
    if (!p.greet(kFeatureMemory)) return;
    OpenReply opened{
        1, {"tenant", {}, {}}, std::make_shared<const Profile>(testing::sample_profile()), {}};
    p.send(flatten(reply_frame(FrameType::open_ok, p.receive()->header.request, opened)));
    p.send(flatten(
        reply_frame(FrameType::reserve_ok, p.receive()->header.request, ReserveReply{42, {}})));
    const auto offer = p.receive();
    if (!offer || offer->header.type != FrameType::memory) return;
    stop->request_stop();
    const auto cancel = p.receive();
    if (!cancel || cancel->header.type != FrameType::cancel) return;
    p.send(flatten(reply_frame(FrameType::memory_ok, offer->header.request, MemoryReply{4096})));
    const auto stats = p.receive();
    if (!stats || stats->header.type != FrameType::stats) return;
    p.send(flatten(reply_frame(FrameType::stats_ok, stats->header.request, StatsReply())));
  });
  SocketClientOptions options;
  options.memory = *OwnMemory::create(4096);
  auto client = SocketClient::connect(peer.path(), "tenant", options);
  ASSERT_TRUE(client.ok());
  auto opened =
      (*client)->open({testing::sample_model(), nullptr, false, PrefillMode::exact}, soon());
  ASSERT_TRUE(opened.ok());
  auto reserved = (*client)->reserve({opened->model, {}, {{1, 2, 3}, {}}}, soon());
  ASSERT_TRUE(reserved.ok());
  const Deadline short_time = deadline_in(std::chrono::milliseconds(2000));
  EXPECT_EQ((*client)
                ->put({reserved->reservation, testing::sample_object(), {}},
                      {short_time, stop->get_token()})
                .code(),
            StatusCode::cancelled);
  EXPECT_TRUE((*client)->stats(deadline_in(std::chrono::milliseconds(2000))).ok());
}

}  // namespace
}  // namespace kv
