// Extras: equal placeholder tokens stand for different images. Served, stored and erased by the
// bytes that go with the tokens, in RAM and after a restart.
#include "tests/support/cachesvc_stepped.h"

namespace kv {
namespace {

Query with_image(const Sequence& tokens, const std::string& digest) {
  Query query{tokens, {}};
  if (!digest.empty()) query.extras = {{20, {digest.begin(), digest.end()}}};
  return query;
}

Status store(Bench& b, const Query& query) {
  KV_ASSIGN_OR_RETURN(ReserveReply reserved,
                      b.client.reserve({b.opened.model, b.opened.realm.profile, query}, soon()));
  for (const Need& need : reserved.needs) {
    auto put = make_put(b.model, 16, query.tokens, need, reserved.reservation);
    KV_RETURN_IF_ERROR(b.client.put(std::move(put), soon()));
  }
  return b.client.commit(reserved.reservation, Durability::spilled, soon()).status();
}

uint32_t served(Bench& b, const Query& query) {
  FetchRequest request;
  request.model = b.opened.model;
  request.query = query;
  auto reply = b.client.fetch(request, soon());
  EXPECT_TRUE(reply.ok()) << reply.status().to_string();
  return reply.ok() ? reply->tokens : 0;
}

TEST(Media, OneImageIsNeverServedForAnother) {
  TempDir dir;
  std::mt19937 rng(1);
  auto tokens = random_tokens(rng, 60);
  for (int start = 0; start < 2; ++start) {
    Stepped client(small_options(dir.store()));
    auto b = Bench::open(client, plain_model());
    if (start == 0) {
      ASSERT_TRUE(store(b, with_image(tokens, "cat")).ok());
    }
    EXPECT_EQ(served(b, with_image(tokens, "cat")), 59u) << start;
    EXPECT_EQ(served(b, with_image(tokens, "dog")), 20u) << "up to the image";
    EXPECT_EQ(served(b, with_image(tokens, "")), 20u) << start;
  }
  Stepped client(small_options(dir.store()));
  auto b = Bench::open(client, plain_model());
  ASSERT_TRUE(store(b, with_image(tokens, "dog")).ok());
  EXPECT_EQ(served(b, with_image(tokens, "dog")), 59u);
  auto erased = client.erase(b.opened.model, with_image(tokens, "cat"), soon());
  ASSERT_TRUE(erased.ok());
  EXPECT_EQ(*erased, 1u) << "its tail";
  EXPECT_EQ(served(b, with_image(tokens, "dog")), 59u);
  EXPECT_EQ(served(b, with_image(tokens, "cat")), 48u);
  Query outside = with_image(tokens, "cat");
  outside.extras[0].position = 60;
  EXPECT_EQ(client.erase(b.opened.model, outside, soon()).status().code(),
            StatusCode::invalid_argument);
}

}  // namespace
}  // namespace kv
