// Hits that a client reads where they lie, from the real daemon: what it maps, how leases end, and
// that nothing is left behind.
#include <sys/socket.h>

#include "tests/support/mapped_testing.h"

namespace kv {
namespace {

using testing::flatten;

// Planes and states of a reply, copied.
std::vector<Object> copy_of(const FetchReply& reply) {
  std::vector<Object> out;
  for (const FetchedObject& o : reply.lease.prefix().objects) {
    Object& copy = out.emplace_back(*o.object);
    for (Plane& p : copy.planes) p.bytes = Bytes::copy_of(p.bytes.span());
  }
  return out;
}
void expect_same(const std::vector<Object>& a, const std::vector<Object>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].name, b[i].name);
    EXPECT_EQ(a[i].planes, b[i].planes);
    EXPECT_EQ(a[i].states, b[i].states);
  }
}

TEST_F(MappedTest, AHitIsReadWhereItLies) {
  begin();
  const auto tokens = stored(100);
  const FetchReply reply = fetched(*bench_, tokens);
  ASSERT_EQ(reply.tokens, 100u);
  bench_->expect_serves(plus_one(tokens), reply);
  EXPECT_FALSE(segments_of(reply.lease.prefix()).contains("")) << "some plane is a copy";
  for (const MappedRange& r : mapped_segments()) EXPECT_EQ(r.mode, "r--s");
  EXPECT_TRUE(reply.lease.valid());
  const FetchReply again = fetched(*bench_, tokens);
  const auto &a = reply.lease.prefix().objects, &b = again.lease.prefix().objects;
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].object.get(), b[i].object.get()) << i;
}

TEST_F(MappedTest, EveryFormAndEverySelectionAsStreamed) {
  begin();
  const auto tokens = stored(80);  // whole blocks: what is shorter than a page is streamed
  auto other = connect_streaming();
  Bench streaming = Bench::open(*other, wide_model());
  std::vector<Selection> selections(5);
  selections[1].layers = {1, 2};
  selections[2].heads = {1, 3};
  selections[3].from_token = 40;
  selections[4] = {20, {0, 1}, {}, {2, 3}};
  for (FetchForm form : {FetchForm::stored, FetchForm::f16, FetchForm::f32}) {
    for (const Selection& selection : selections) {
      FetchRequest request;
      request.query.tokens = plus_one(tokens);
      request.form = form;
      request.selection = selection;
      request.model = bench_->opened.model;
      auto mapped = client_->fetch(request, soon());
      request.model = streaming.opened.model;
      auto streamed = other->fetch(request, soon());
      ASSERT_TRUE(mapped.ok() && streamed.ok()) << mapped.status().to_string();
      EXPECT_EQ(mapped->tokens, streamed->tokens);
      expect_same(copy_of(*mapped), copy_of(*streamed));
      EXPECT_FALSE(segments_of(mapped->lease.prefix()).contains("")) << "some plane is a copy";
      EXPECT_EQ(segments_of(streamed->lease.prefix()), std::set<std::string>{""});
    }
  }
}

TEST_F(MappedTest, ABatchOfHits) {
  begin();
  const auto a = stored(64), b = stored(48);
  std::vector<FetchRequest> requests;
  for (int i = 0; i < 40; ++i) {
    FetchRequest& r = requests.emplace_back();
    r.model = bench_->opened.model;
    r.query.tokens = plus_one(i % 2 ? a : b);
  }
  const auto replies = client_->fetch_all(requests, soon());
  for (size_t i = 0; i < replies.size(); ++i) {
    ASSERT_TRUE(replies[i].ok()) << replies[i].status().to_string();
    bench_->expect_serves(requests[i].query.tokens, *replies[i]);
  }
}

TEST_F(MappedTest, ALeaseEndsWithItsLastPointer) {
  begin();
  const auto tokens = stored(100);
  ObjectPtr kept;
  {
    const FetchReply reply = fetched(*bench_, tokens);
    kept = reply.lease.prefix().objects[0].object;
  }
  EXPECT_GT(bench_->stat("pins"), 0u) << "an object of it is still held";
  kept.reset();
  const Deadline deadline = soon();
  while (bench_->stat("pins") != 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST_F(MappedTest, ManyLeasesAndThenNoMore) {
  begin();
  const auto tokens = stored(16);
  std::vector<FetchReply> held;
  for (size_t i = 0; i < 1024; ++i) held.push_back(fetched(*bench_, tokens));
  EXPECT_EQ(segments_of(held.back().lease.prefix()).count(""), 0u);
  const FetchReply more = fetched(*bench_, tokens);
  EXPECT_EQ(segments_of(more.lease.prefix()), std::set<std::string>{""}) << "streamed, then";
  held.clear();
  const FetchReply after = fetched(*bench_, tokens);
  EXPECT_EQ(segments_of(after.lease.prefix()).count(""), 0u);
}

// A client that is killed holds nothing any more.
TEST_F(MappedTest, AKilledClientsLeasesAreGone) {
  begin();
  const auto tokens = stored(100);
  ForkedClient other;
  ASSERT_TRUE(other.start([&](auto stay) {
    auto client = SocketClient::connect(socket(), "test", {});
    Bench bench = Bench::open(**client, wide_model());
    const FetchReply reply = fetched(bench, tokens);
    stay(!segments_of(reply.lease.prefix()).contains(""));
  }));
  EXPECT_GT(stat("pins"), 0u);
  other.kill();
  wait_for("pins", 0);
}

TEST_F(MappedTest, AKilledDaemonLeavesNothing) {
  const auto before = shared_memory();
  begin();
  const auto tokens = stored(100);
  {
    const FetchReply reply = fetched(*bench_, tokens);
    EXPECT_EQ(shared_memory(), before);
    daemon_->kill();
    bench_->expect_serves(plus_one(tokens), reply);
    EXPECT_TRUE(reply.lease.valid()) << "nobody writes there any more";
    EXPECT_FALSE(bench_->fetch(plus_one(tokens)).ok());
  }
  client_.reset();
  EXPECT_TRUE(mapped_segments().empty());
  EXPECT_EQ(shared_memory(), before);
}

TEST_F(MappedTest, AClientThatSaysNothingLosesItsLeases) {
  begin({"lease_timeout=50", "handshake_timeout=200"});
  const auto tokens = stored(100);
  const FetchReply reply = fetched(*bench_, tokens);
  wait_for("pins", 0);  // asked by others
  EXPECT_TRUE(reply.lease.valid()) << "taken back, but nobody has written there";
  bench_->expect_serves(plus_one(tokens), reply);
}

// At most half of the RAM is mapped: the rest of what a client holds has come by the socket, and
// others store as before.
TEST_F(MappedTest, AHolderOfAllItCanGetLeavesHalf) {
  begin();
  std::vector<std::vector<Token>> all;
  std::vector<FetchReply> held;
  for (int i = 0; i < 12; ++i) {  // 4 MiB each, of about 50 that fit
    all.push_back(stored(1024));
    held.push_back(fetched(*bench_, all.back()));
    EXPECT_LE(bench_->stat("segment_announced_bytes"), 32u << 20);
  }
  EXPECT_TRUE(segments_of(held.back().lease.prefix()).contains("")) << "it was streamed";
  auto other = connect("other");
  Bench bench = Bench::open(*other, wide_model());
  for (int i = 0; i < 12; ++i) {
    const auto tokens = random_tokens(rng_, 256);
    auto stored = bench.store(tokens);
    ASSERT_TRUE(stored.ok()) << i << ": " << stored.status().to_string();
    EXPECT_EQ(fetched(bench, tokens).tokens, 256u) << i;
  }
  for (size_t i = 0; i < held.size(); ++i) {
    EXPECT_TRUE(held[i].lease.valid()) << i;
    bench_->expect_serves(plus_one(all[i]), held[i]);
  }
}

// The first hit of what was stored finds its segments sealed.
TEST_F(MappedTest, WhatAClientStoresIsAnnouncedBeforeItAsks) {
  begin();
  stored(1024);
  const Deadline deadline = soon();
  while (bench_->stat("segment_announced_bytes") == 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  EXPECT_TRUE(mapped_segments().empty()) << "nothing is sent";
  for (int i = 0; i < 8; ++i) stored(1024);  // 4 MiB each
  const auto last = stored(16);
  EXPECT_LE(bench_->stat("segment_announced_bytes"), 8u << 20) << "an eighth of the budget";
  fetched(*bench_, last);
}

// Segments go back whole once their objects have gone and their clients have let go.
TEST_F(MappedTest, EmptySegmentsAreRevokedAndGoBack) {
  begin({"handshake_timeout=100"});
  for (int i = 0; i < 8; ++i) fetched(*bench_, stored(1024));
  EXPECT_GT(mapped_segments().size(), 8u) << "segments of 2 MiB";
  ASSERT_TRUE(client_->erase(bench_->opened.model, {}, soon()).ok());
  const Deadline deadline = soon();
  // Each look is a call of the client that has them mapped.
  while (bench_->stat("segments") > 4) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_LE(mapped_segments().size(), 4u) << "an eighth of the budget";
  const auto tokens = stored(100);
  bench_->expect_serves(plus_one(tokens), fetched(*bench_, tokens));
}

TEST_F(MappedTest, NoByteOfAnotherNamespaceIsMapped) {
  begin();
  auto other = connect("other");
  Bench theirs = Bench::open(*other, wide_model());
  std::set<std::string> a, b;
  for (int i = 0; i < 6; ++i) {
    a.merge(segments_of(fetched(*bench_, stored(200)).lease.prefix()));
    const auto tokens = random_tokens(rng_, 200);
    ASSERT_TRUE(theirs.store(tokens).ok());
    b.merge(segments_of(fetched(theirs, tokens).lease.prefix()));
  }
  for (const std::string& inode : a) EXPECT_FALSE(b.contains(inode));
}

// ------------------------------------------------------------------ peers that say what they like

std::vector<uint8_t> raw_fetch(FrameType type) {
  FetchCall call;
  call.request.query.tokens = {1, 2, 3};
  return flatten(request_frame(type, 2, 1000, call));
}

TEST_F(MappedTest, WithoutTheFeatureNothingIsMapped) {
  begin();
  RawPeer peer(socket());
  peer.hello();
  peer.send(raw_fetch(FrameType::fetch_mapped));
  EXPECT_EQ(peer.receive_error(), StatusCode::unsupported);
  peer.send(flatten(reply_frame(FrameType::leases_ended, 0, LeasesEnded{{1}})));
  EXPECT_EQ(peer.receive_error(), StatusCode::unsupported);
}

TEST_F(MappedTest, WhatEndsNeedNotBeThere) {
  begin();
  RawPeer peer(socket());
  HelloRequest hello;
  hello.ns = "raw";
  hello.features = kFeatureSegments | 0x80000000;
  peer.send(flatten(reply_frame(FrameType::hello, 1, hello)));
  auto ok = peer.receive();
  ASSERT_TRUE(ok.has_value());
  auto granted = decode_reply<HelloReply>(FrameType::hello_ok, ok->body.span());
  ASSERT_TRUE(granted.ok());
  EXPECT_EQ(granted->features, kFeatureSegments);
  peer.send(flatten(reply_frame(FrameType::leases_ended, 0, LeasesEnded{{1, 7, 7}})));
  peer.send(flatten(reply_frame(FrameType::segment_unmapped, 0, SegmentUnmapped{9})));
  peer.send(raw_fetch(FrameType::fetch_mapped));
  EXPECT_EQ(peer.receive_error(), StatusCode::invalid_argument) << "no such model";
  peer.send(flatten(reply_frame(FrameType::segment_unmapped, 0, SegmentUnmapped{0})));
  EXPECT_EQ(peer.receive_error(), StatusCode::corruption);
  EXPECT_FALSE(peer.receive().has_value()) << "and the connection is closed";
}

// Descriptors that a client sends are closed by the kernel.
TEST_F(MappedTest, TheDaemonKeepsNoDescriptorOfAClient) {
  begin();
  const std::string process = std::to_string(daemon_->pid());
  bench_->stat("sessions");
  const size_t before = open_files(process);
  RawPeer peer(socket());
  HelloRequest hello;
  hello.ns = "raw";
  auto bytes = flatten(reply_frame(FrameType::hello, 1, hello));
  iovec piece{bytes.data(), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))]{};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(4 * sizeof(int));
  const int four[4] = {0, 1, 2, 2};
  std::memcpy(CMSG_DATA(header), four, sizeof(four));
  ASSERT_GT(::sendmsg(peer.descriptor(), &message, 0), 0);
  ASSERT_TRUE(peer.receive().has_value());
  EXPECT_EQ(open_files(process), before + 1) << "the connection, and nothing else";
}

}  // namespace
}  // namespace kv
