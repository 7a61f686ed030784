// Batches over the socket: every request gets the answer that it would get by itself.
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

}  // namespace
}  // namespace kv
