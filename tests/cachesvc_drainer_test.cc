// What signals do to the real daemon: which drain, which end it, and which it takes no notice of.
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

using testing::flatten;

// A peer that is owed more than its socket takes and reads nothing holds up the end of the drain.
void owe_replies(RawPeer& peer, Client& client, std::mt19937& rng) {
  ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(8, 128)}}));
  auto b = Bench::open(client, model);
  auto tokens = random_tokens(rng, 128);  // 4 MiB of rows
  ASSERT_TRUE(b.store(tokens).ok());
  peer.hello();
  ASSERT_TRUE(peer.send(flatten(request_frame(
      FrameType::open, 2, 0, OpenRequest{model, nullptr, false, PrefillMode::exact}))));
  auto opened = decode_reply<OpenReply>(FrameType::open_ok, peer.receive()->body.span());
  ASSERT_TRUE(opened.ok());
  FetchCall call;
  call.request.model = opened->model;
  call.request.query.tokens = tokens;
  for (uint64_t id = 3; id < 12; ++id) {
    ASSERT_TRUE(peer.send(flatten(request_frame(FrameType::fetch, id, 0, call))));
  }
  Deadline deadline = soon();
  while (b.stat("fetches") < 9) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

// What was acked is there afterwards, what was only accepted perhaps; nothing is half written.
TEST_F(ServerTest, ASecondSignalEndsTheDrainAtOnceAndHarmsNothing) {
  start({"--set", "server.drain_timeout=1h", "--set", "tier.ssd.spill=evict"},
        {"progress_timeout=3600000"});
  auto client = connect("raw");
  auto b = Bench::open(*client, plain_model(2, 8));
  auto durable = random_tokens(rng_, 100), accepted = random_tokens(rng_, 4000);
  ASSERT_EQ(b.store(durable, Durability::durable)->level, Durability::durable);
  ASSERT_TRUE(b.store(accepted).ok());  // the drain has 250 blocks to write
  RawPeer peer(socket());
  ASSERT_NO_FATAL_FAILURE(owe_replies(peer, *client, rng_));
  ASSERT_EQ(::kill(daemon_->pid(), SIGTERM), 0);
  Deadline deadline = soon();
  while (fs::exists(socket())) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_EQ(daemon_->stop_now(), 1) << "a later SIGTERM; the drain alone would take an hour";
  start();
  client = connect("raw");
  auto again = Bench::open(*client, plain_model(2, 8));
  for (const auto& tokens : {durable, accepted}) {
    auto hit = again.fetch(tokens);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    again.expect_serves(tokens, *hit);
    EXPECT_GE(hit->tokens, tokens == durable ? 99u : 0u);
  }
  EXPECT_EQ(stat("quarantined"), 0u);
}

TEST_F(ServerTest, ADrainEndsByItsLimit) {
  start({"--set", "server.drain_timeout=200ms"}, {"progress_timeout=3600000"});
  auto client = connect("raw");
  RawPeer peer(socket());
  ASSERT_NO_FATAL_FAILURE(owe_replies(peer, *client, rng_));
  EXPECT_EQ(daemon_->stop(), 0);  // the test's own time limit says that it ended
}

// Two that come together are one wish, as timeout(1) utters it: it signals its child and then the
// group. (Two of one kind would be merged while the daemon is stopped.)
TEST_F(ServerTest, TwoSignalsAtOnceDrainAsOne) {
  start({"--set", "tier.ssd.spill=evict"});
  auto tokens = random_tokens(rng_, 4000);
  {
    auto client = connect();
    auto b = Bench::open(*client, plain_model(2, 8));
    ASSERT_TRUE(b.store(tokens).ok());
  }
  ASSERT_EQ(::kill(daemon_->pid(), SIGSTOP), 0);
  ASSERT_EQ(::kill(daemon_->pid(), SIGINT), 0);
  ASSERT_EQ(::kill(daemon_->pid(), SIGTERM), 0);
  ASSERT_EQ(::kill(daemon_->pid(), SIGCONT), 0);
  EXPECT_EQ(daemon_->wait(), 0);
  start();
  auto client = connect();
  auto b = Bench::open(*client, plain_model(2, 8));
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, 4000u);
}

TEST_F(ServerTest, OtherSignalsAreNoticedOrNotAndEndNothing) {
  LogFile log(dir_.store() + ".log");
  ASSERT_NO_FATAL_FAILURE(log.hears([&] { start({"--set", "log.level=info"}); }));
  for (int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGHUP}) {
    ASSERT_EQ(::kill(daemon_->pid(), signal), 0);
    EXPECT_TRUE(connect()) << "after signal " << signal;
  }
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_EQ(log.lines_with("reload: users and tokens read anew"), 2u) << log.text();
}

TEST_F(ServerTest, SigquitDrainsToo) {
  start({"--set", "tier.ssd.spill=evict"});
  auto tokens = random_tokens(rng_, 400);
  {
    auto client = connect();
    auto b = Bench::open(*client, plain_model());
    ASSERT_TRUE(b.store(tokens).ok());
  }
  ASSERT_EQ(::kill(daemon_->pid(), SIGQUIT), 0);
  EXPECT_EQ(daemon_->wait(), 0);
  start();
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  EXPECT_EQ(b.fetch(plus_one(tokens))->tokens, 400u);
}

}  // namespace
}  // namespace kv
