// RedisNodes and ClusterMap by themselves: who is known, who is up, and what is asked for when.
#include <gtest/gtest.h>

#include "cachesvc/remote/cluster_map.h"
#include "tests/support/cachesvc_redis.h"

namespace kv {
namespace {

using testing::RedisServer;

const Status kWhy(StatusCode::unavailable, "by the test");

class RemoteNodesTest : public ::testing::Test {
 protected:
  ~RemoteNodesTest() override {
    nodes_.close(kWhy);
    io_.restart();
    io_.poll();
  }
  // Until `so`; for a minute at most.
  void run_until(const std::function<bool()>& so) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!so() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_one_for(std::chrono::milliseconds(10));
    }
    ASSERT_TRUE(so());
  }

  // A busy machine's server answers late.
  static RemoteLinkOptions patient() {
    RemoteLinkOptions options;
    options.connect_timeout = options.answer_timeout = std::chrono::seconds(20);
    return options;
  }

  boost::asio::io_context io_;
  const RemoteLinkOptions options_ = patient();
  const NodeAddress a_{"127.0.0.1", 1}, b_{"127.0.0.1", 2};  // nobody listens there
  RedisNodes nodes_{io_, options_};
};

TEST_F(RemoteNodesTest, ANodeIsOneWhoeverNamesIt) {
  EXPECT_EQ(nodes_.find(a_), nullptr);
  const RedisNodeRef a = nodes_.at(a_);
  EXPECT_EQ(a->address, a_);
  EXPECT_EQ(nodes_.at(a_), a);
  EXPECT_EQ(nodes_.find(a_), a);
  EXPECT_NE(nodes_.at(b_), a);
  EXPECT_EQ(nodes_.all().size(), 2u);
}

TEST_F(RemoteNodesTest, AFailureIsCountedOnceForAllItsCommands) {
  const RedisNodeRef a = nodes_.at(a_), b = nodes_.at(b_);
  nodes_.failed(*a, "refused");
  nodes_.failed(*a, "refused too");
  EXPECT_EQ(nodes_.failures(), 1u);
  EXPECT_EQ(a->last_error, "refused too");
  EXPECT_EQ(nodes_.up(), std::vector{b_});
  a->breaker.answered();
  nodes_.failed(*a, "again");
  EXPECT_EQ(nodes_.failures(), 2u);
}

TEST_F(RemoteNodesTest, ALinkIsForItsWayAndAnewOnceItIsClosed) {
  RedisNode& a = *nodes_.at(a_);
  RemoteLink& question = nodes_.link(a, RedisWay::question);
  EXPECT_EQ(&nodes_.link(a, RedisWay::question), &question);
  EXPECT_NE(&nodes_.link(a, RedisWay::value), &question);
  const std::shared_ptr<RemoteLink> first = a.question;
  first->close(kWhy);
  EXPECT_NE(&nodes_.link(a, RedisWay::question), first.get());
}

TEST_F(RemoteNodesTest, WhoIsNotNamedGoesWithItsCommands) {
  std::vector<StatusCode> ended;
  for (const NodeAddress& address : {a_, b_}) {
    nodes_.link(*nodes_.at(address), RedisWay::value)
        .send({{remote_words({"PING"})}, {}, nullptr, [&](const Result<RespReply>& reply) {
                 ended.push_back(reply.status().code());
               }});
  }
  nodes_.keep_only({a_}, kWhy);
  EXPECT_EQ(ended, std::vector{StatusCode::unavailable});
  EXPECT_EQ(nodes_.find(b_), nullptr);
  EXPECT_NE(nodes_.find(a_), nullptr);
  nodes_.close(kWhy);
  EXPECT_EQ(ended.size(), 2u);
  EXPECT_TRUE(nodes_.all().empty());
}

class ClusterMapTest : public RemoteNodesTest {
 protected:
  ~ClusterMapTest() override {
    map_.close();
    nodes_.close(kWhy);  // while the map is there
  }

  std::vector<NodeAddress> seeds_{a_, b_};
  std::vector<Status> told_;
  ClusterMap map_{io_, nodes_, seeds_, [this](const Status& status) { told_.push_back(status); }};
};

TEST_F(ClusterMapTest, IsToldOnceThatNobodyHasOne) {
  map_.ask();
  map_.ask();  // one round at a time
  run_until([&] { return !told_.empty(); });
  ASSERT_EQ(told_.size(), 1u);
  EXPECT_EQ(told_[0].code(), StatusCode::unavailable);
  EXPECT_NE(told_[0].message().find(to_string(a_)), std::string::npos) << told_[0].message();
  EXPECT_FALSE(map_.known());
  EXPECT_EQ(map_.shard_of(0), nullptr);
  EXPECT_EQ(nodes_.failures(), 2u) << "each seed was asked";
  map_.ask();
  run_until([&] { return told_.size() == 2; });
}

TEST_F(ClusterMapTest, TellsNobodyOnceItIsClosed) {
  map_.ask();
  map_.close();
  nodes_.close(kWhy);
  io_.restart();
  io_.poll();
  map_.ask();
  map_.ask_soon();
  EXPECT_TRUE(told_.empty());
  EXPECT_TRUE(nodes_.all().empty()) << "nobody was asked again";
}

TEST_F(ClusterMapTest, AServerWithoutAClusterHasAllSlots) {
  KV_NEEDS_REDIS();
  RedisServer server;
  if (!server.runs()) GTEST_SKIP() << "its port was taken";
  seeds_ = {b_, server.address()};  // the first one is not there
  nodes_.at(a_);
  nodes_.failed(*nodes_.at(a_), "not there");
  map_.ask();
  run_until([&] { return !told_.empty(); });
  ASSERT_TRUE(told_[0].ok()) << told_[0].to_string();
  EXPECT_TRUE(map_.known() && map_.single());
  EXPECT_EQ(map_.taken(), 1u);
  EXPECT_EQ(map_.masters(), std::vector{server.address()});
  EXPECT_EQ(map_.shard_of(kSlots - 1)->master, server.address());
  EXPECT_EQ(nodes_.find(a_), nullptr) << "neither a seed nor in the map";
  map_.moved(7, a_);
  EXPECT_EQ(map_.shard_of(7)->master, a_);
  run_until([&] { return map_.taken() == 2; });
  EXPECT_EQ(map_.shard_of(7)->master, server.address()) << "a redirect has it asked for anew";
}

}  // namespace
}  // namespace kv
