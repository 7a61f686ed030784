// Batches and cancels over the socket: every request gets the answer that it would get by itself,
// or is cancelled.
#include <future>
#include <memory>
#include <stop_token>

#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

class BatchesTest : public ServerTest {
 protected:
  Bench& bench() {
    if (!bench_) {
      start();
      client_ = connect();
      bench_ = std::make_unique<Bench>(Bench::open(*client_, plain_model()));
    }
    return *bench_;
  }
  std::vector<Token> stored(size_t n) {
    auto tokens = random_tokens(rng_, n);
    EXPECT_TRUE(bench().store(tokens).ok());
    return tokens;
  }
  QueryRequest lookup_of(const std::vector<Token>& tokens) {
    return {bench().opened.model, {tokens, {}}, {}};
  }
  FetchRequest fetch_of(const std::vector<Token>& tokens, FetchForm form = FetchForm::stored) {
    FetchRequest request;
    request.model = bench().opened.model;
    request.query.tokens = tokens;
    request.form = form;
    return request;
  }

  std::mt19937 rng_{21};
  std::unique_ptr<SocketClient> client_;
  std::unique_ptr<Bench> bench_;
};

TEST_F(BatchesTest, LookupsSomeOfWhichAreWrong) {
  const auto a = stored(50), b = stored(20);
  std::vector<QueryRequest> requests;
  for (int i = 0; i < 100; ++i) requests.push_back(lookup_of(plus_one(i % 2 ? a : b)));
  requests[40].model = 9;                            // no such handle
  requests[41].query.tokens.resize(kMaxTokens, 0);   // more than the service takes in at a time
  requests[42].query.extras = {{7, {1}}, {6, {2}}};  // not ascending
  const auto replies = bench().client.lookup_all(requests, soon());
  ASSERT_EQ(replies.size(), 100u);
  for (size_t i = 0; i < 100; ++i) {
    SCOPED_TRACE(i);
    if (i >= 40 && i <= 42) {
      EXPECT_EQ(replies[i].status().code(),
                i == 41 ? StatusCode::resource_exhausted : StatusCode::invalid_argument);
      continue;
    }
    ASSERT_TRUE(replies[i].ok()) << replies[i].status().to_string();
    EXPECT_EQ(replies[i]->tokens, i % 2 ? 50u : 20u);
  }
  EXPECT_TRUE(bench().client.lookup_all({}, soon()).empty());
}

// Neither side reads before the other has: requests and replies are longer than a socket holds.
TEST_F(BatchesTest, LongQueriesBesideLongReplies) {
  const auto tokens = stored(400);
  std::vector<FetchRequest> requests(60, fetch_of(tokens, FetchForm::f32));
  for (FetchRequest& r : requests) r.query.tokens.resize(60'000, 1);
  const auto replies = bench().client.fetch_all(requests, soon());
  ASSERT_EQ(replies.size(), requests.size());
  for (const auto& reply : replies) {
    ASSERT_TRUE(reply.ok()) << reply.status().to_string();
    EXPECT_EQ(reply->tokens, 400u);
    EXPECT_EQ(reply->lease.prefix().objects.size(), 25u);
  }
}

TEST_F(BatchesTest, PutsOfOneStore) {
  const auto tokens = random_tokens(rng_, 330);
  auto reserved = bench().reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  std::vector<PutRequest> puts;
  for (const Need& need : reserved->needs) {
    puts.push_back(make_put(bench().model, 16, tokens, need, reserved->reservation));
  }
  PutRequest wrong = puts[3];
  wrong.object.planes.pop_back();
  puts.insert(puts.begin() + 3, wrong);
  PutRequest other = puts[0];
  other.reservation += 1;
  puts.push_back(other);
  const auto replies = bench().client.put_all(puts, soon());
  ASSERT_EQ(replies.size(), puts.size());
  for (size_t i = 0; i < replies.size(); ++i) {
    const bool refused = i == 3 || i + 1 == replies.size();
    EXPECT_EQ(replies[i].code(), refused ? StatusCode::invalid_argument : StatusCode::ok) << i;
  }
  ASSERT_TRUE(bench().client.commit(reserved->reservation, Durability::accepted, soon()).ok());
  auto hit = bench().fetch(plus_one(tokens));
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 330u);
  bench().expect_serves(plus_one(tokens), *hit);
}

TEST_F(BatchesTest, NobodyListensToAnyOfThem) {
  const auto tokens = stored(20);
  daemon_.reset();
  for (const auto& reply :
       bench().client.lookup_all(std::vector<QueryRequest>(5, lookup_of(tokens)), soon())) {
    EXPECT_EQ(reply.status().code(), StatusCode::unavailable);
  }
}

class CancelTest : public BatchesTest {
 protected:
  // Commits that are to be durable wait for a sync that nobody sees here.
  void start_slow() { start({}, {"durable_group_delay=60000"}); }
};

// An opened model and a reservation with all that it lacked, on a connection of one's own.
struct Storing {
  Storing(RawPeer& peer, const std::vector<Token>& tokens) {
    auto call = [&](FrameType type, FrameType answer, auto request, auto reply) {
      peer.send(testing::flatten(request_frame(type, 2, 0, request)));
      return *decode_reply<decltype(reply)>(answer, peer.receive()->body.span());
    };
    const ModelSpec model = plain_model();
    const auto opened = call(FrameType::open, FrameType::open_ok,
                             OpenRequest{model, nullptr, false, PrefillMode::exact}, OpenReply());
    handle = opened.model;
    profile = opened.realm.profile;
    const auto reserved = call(FrameType::reserve, FrameType::reserve_ok,
                               ReserveRequest{handle, profile, {tokens, {}}}, ReserveReply());
    reservation = reserved.reservation;
    for (const Need& need : reserved.needs) {
      peer.send(testing::flatten(put_frame(3, 0, make_put(model, 16, tokens, need, reservation))));
      EXPECT_EQ(peer.receive()->header.type, FrameType::put_ok);
    }
  }
  uint32_t handle = 0;
  Id profile;
  uint64_t reservation = 0;
};

TEST_F(CancelTest, OneThatWaitsIsAnsweredOnceAndTheConnectionGoesOn) {
  start_slow();
  const auto tokens = random_tokens(rng_, 40);
  RawPeer peer(socket());
  peer.hello();
  const Storing store(peer, tokens);
  const auto lookup = testing::flatten(request_frame(
      FrameType::lookup, 12, 0, QueryRequest{store.handle, {plus_one(tokens), {}}, store.profile}));
  auto cancel_of = [](uint64_t id) {
    return testing::flatten(reply_frame(FrameType::cancel, 0, Cancel{id}));
  };
  peer.send(testing::flatten(request_frame(FrameType::commit, 11, 0,
                                           CommitRequest{store.reservation, Durability::durable})));
  peer.send(cancel_of(10));  // never asked for
  peer.send(lookup);
  EXPECT_EQ(peer.receive()->header.request, 12u) << "the commit waits";
  for (uint64_t id : {12, 11, 11}) peer.send(cancel_of(id));
  auto frame = peer.receive();
  ASSERT_TRUE(frame && frame->header.type == FrameType::error);
  EXPECT_EQ(frame->header.request, 11u);
  EXPECT_EQ(decode_reply<ErrorReply>(FrameType::error, frame->body.span())->code,
            StatusCode::cancelled);
  peer.send(lookup);
  frame = peer.receive();
  ASSERT_TRUE(frame && frame->header.type == FrameType::lookup_ok);
  EXPECT_EQ(decode_reply<LookupReply>(FrameType::lookup_ok, frame->body.span())->tokens, 40u);
}

TEST_F(CancelTest, OneThatIsNoCancelEndsTheConnection) {
  start();
  RawPeer early(socket());
  early.send(testing::flatten(reply_frame(FrameType::cancel, 0, Cancel{1})));
  EXPECT_EQ(early.receive_error(), StatusCode::invalid_argument);
  EXPECT_FALSE(early.receive());
  RawPeer wrong(socket());
  wrong.hello();
  wrong.send(testing::flatten(reply_frame(FrameType::cancel, 0, AbortRequest{1})));
  wrong.send(testing::flatten(reply_frame(FrameType::cancel, 0, Empty{})));
  EXPECT_EQ(wrong.receive_error(), StatusCode::corruption);
  EXPECT_FALSE(wrong.receive());
}

TEST_F(CancelTest, AStopEndsACallAndItsConnectionIsUsedAgain) {
  start_slow();
  SocketClientOptions options;
  options.max_connections = 1;
  auto client = SocketClient::connect(socket(), "test", options);
  ASSERT_TRUE(client.ok());
  const auto tokens = random_tokens(rng_, 40);
  auto bench = Bench::open(**client, plain_model());
  auto reserved = bench.reserve(tokens);
  ASSERT_TRUE(reserved.ok());
  for (const Need& need : reserved->needs) {
    ASSERT_TRUE((*client)
                    ->put(make_put(bench.model, 16, tokens, need, reserved->reservation), soon())
                    .ok());
  }
  const auto stop = std::make_unique<std::stop_source>();  // on the stack GCC 12 warns at -Og
  auto commit = std::async(std::launch::async, [&] {
    return (*client)->commit(reserved->reservation, Durability::durable,
                             {soon(), stop->get_token()});
  });
  wait_for("waiting_calls", 2);                       // and that of the stats
  auto behind = std::async(std::launch::async, [&] {  // waits for the connection
    return (*client)->stats({soon(), stop->get_token()});
  });
  stop->request_stop();
  EXPECT_EQ(commit.get().status().code(), StatusCode::cancelled);
  EXPECT_EQ(behind.get().status().code(), StatusCode::cancelled);
  auto hit = bench.fetch(plus_one(tokens));
  ASSERT_TRUE(hit.ok()) << hit.status().to_string();
  EXPECT_EQ(hit->tokens, 40u) << "a commit that had begun went on";
  EXPECT_EQ(stat("sessions"), 2u) << "it is the connection of before";
}

}  // namespace
}  // namespace kv
