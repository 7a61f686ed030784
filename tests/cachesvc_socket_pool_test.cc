// The socket client's connections against the real daemon: abandoned reservations, which connection
// a call takes, and forks.
#include <sys/wait.h>
#include <unistd.h>

#include "proto/socket_pool.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

class PoolTest : public ServerTest {
 protected:
  std::unique_ptr<SocketClient> client_of(SocketClientOptions options) {
    auto client = SocketClient::connect(socket(), "test", options);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return std::move(*client);
  }
  std::mt19937 rng_{3};
};

TEST_F(PoolTest, AbandonedReservationsMakeRoom) {
  start();
  SocketClientOptions options;
  options.max_reservations = 4;
  options.abandoned_after = std::chrono::seconds(0);
  auto client = client_of(options);
  Bench b = Bench::open(*client, plain_model());
  for (int i = 0; i < 20; ++i) {
    auto reserved = b.reserve(random_tokens(rng_, 40));
    ASSERT_TRUE(reserved.ok()) << i << ": " << reserved.status().to_string();
  }
  ASSERT_TRUE(b.store(random_tokens(rng_, 40)).ok());
  options.abandoned_after = std::chrono::seconds(60);
  auto patient = client_of(options);
  Bench p = Bench::open(*patient, plain_model());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(p.reserve(random_tokens(rng_, 40)).ok());
  EXPECT_EQ(p.reserve(random_tokens(rng_, 40)).status().code(), StatusCode::busy);
}

// A connection whose puts are under way answers nothing else meanwhile.
TEST_F(PoolTest, CallsTakeTheConnectionWithTheFewestReservationsUnusedForLongest) {
  start();
  SocketPool pool(socket(), "test", {});
  SocketPool::ConnectionPtr one, two, three;
  {
    auto a = pool.acquire(soon()), b = pool.acquire(soon()), c = pool.acquire(soon());
    ASSERT_TRUE(a.ok() && b.ok() && c.ok());
    one = a->get(), two = b->get(), three = c->get();
    pool.add_reservation(one, 1);
    pool.add_reservation(three, 2);
    uint64_t ended = pool.add_reservation(three, 3);
    pool.end_reservation(ended);
  }
  {
    auto first = pool.acquire(soon()), second = pool.acquire(soon());
    ASSERT_TRUE(first.ok() && second.ok());
    EXPECT_EQ(first->get(), two) << "none";
    EXPECT_TRUE(second->get() == one || second->get() == three);
  }
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pool.acquire(soon())->get(), two);
}

TEST_F(PoolTest, AChildProcessIsRefusedAndDisturbsNobody) {
  start();
  auto client = client_of({});
  Bench b = Bench::open(*client, plain_model());
  auto tokens = random_tokens(rng_, 40);
  ASSERT_TRUE(b.store(tokens).ok());
  const pid_t child = ::fork();
  if (child == 0) {
    bool refused = client->stats(soon()).status().code() == StatusCode::unavailable;
    refused &= client->abort(1, soon()).code() == StatusCode::unavailable;
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, 40u);
}

}  // namespace
}  // namespace kv
