// Over the real socket: what a request may take of the ledger, how reservations and the daemon
// itself end, and who may connect.
#include <sys/stat.h>

#include <cerrno>

#include "cachesvc/daemon/session.h"
#include "tests/support/cachesvc_server.h"

namespace kv {
namespace {

using testing::flatten;

TEST_F(ServerTest, AFailedCommitEndsItsReservation) {
  start();
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  auto reserved = b.reserve(random_tokens(rng_, 40));
  ASSERT_TRUE(reserved.ok());
  EXPECT_EQ(stat("reservations"), 1u);
  auto commit = client->commit(reserved->reservation, Durability::accepted, soon());
  EXPECT_EQ(commit.status().code(), StatusCode::invalid_argument) << "nothing was put";
  EXPECT_EQ(stat("reservations"), 0u);
  EXPECT_EQ(stat("ram_stored_bytes"), 0u);
}

TEST_F(ServerTest, LongRequestsArePaidForOrRefused) {
  start({"--set", "tier.ram.budget=8MiB"});  // a quarter of it for bytes in transit
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  auto fits = random_tokens(rng_, 200'000), over = random_tokens(rng_, 400'000);
  EXPECT_TRUE(client->lookup({b.opened.model, {fits, {}}}, soon()).ok());
  EXPECT_EQ(client->lookup({b.opened.model, {over, {}}}, soon()).status().code(),
            StatusCode::resource_exhausted);
  EXPECT_EQ(b.fetch(over).status().code(), StatusCode::resource_exhausted);
  EXPECT_EQ(b.fetch(fits)->tokens, 0u);
  EXPECT_GE(stat("ram_peak_bytes"), 2 * 200'000 * sizeof(Token));
  EXPECT_EQ(stat("ram_staging_bytes"), 0u);
}

TEST_F(ServerTest, ALongReplyIsManySteps) {
  start({"--set", "tier.ram.budget=256MiB"});
  auto client = connect_streaming();
  ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(8, 128)}}));
  auto b = Bench::open(*client, model);
  auto tokens = random_tokens(rng_, 512);  // 16 MiB of rows
  ASSERT_TRUE(b.store(tokens).ok());
  uint64_t before = b.stat("loop_handlers");
  auto hit = b.fetch(plus_one(tokens));
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 512u);
  EXPECT_GE(b.stat("loop_handlers") - before, (16u << 20) / kLongTurnBytes);
}

// Bursts that each use up a turn (the daemon is stopped meanwhile, to find each whole) give a frame
// no more time than others have.
TEST_F(ServerTest, AFrameThatComesInWholeTurnsIsCutInTimeToo) {
  constexpr auto kPause = std::chrono::milliseconds(600);
  constexpr size_t kBody = 1u << 20;  // 8 turns: 4.8 s in pauses, where 3 s are given
  start({}, {"progress_timeout=2000", "max_put=1048576"});
  RawPeer peer(socket());
  peer.hello();
  ASSERT_TRUE(peer.send(encode_frame_header({kProtocolVersion, FrameType::put, 2, kBody, 0})));
  Deadline deadline = soon();
  while (stat("ram_staging_bytes") == 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  const std::vector<uint8_t> turn(kTurnBytes);
  size_t sent = 0;
  for (; sent < kBody; sent += kTurnBytes) {
    std::this_thread::sleep_for(kPause);
    ASSERT_EQ(::kill(daemon_->pid(), SIGSTOP), 0);
    bool open = peer.send(turn);
    ASSERT_EQ(::kill(daemon_->pid(), SIGCONT), 0);
    if (!open) break;
    (void)stat("sessions");  // answered after the turn: the next one finds the socket empty
  }
  EXPECT_LT(sent, kBody) << "all of it was taken";
  EXPECT_FALSE(peer.receive().has_value()) << "after " << sent;
  wait_for("ram_staging_bytes", 0);
}

// What a put's header says gives it no time: it is cut once it is behind, and with it goes what the
// stores of others wait for.
TEST_F(ServerTest, ALongPutThatDribblesIsCutForWhatItHasSent) {
  start({}, {"progress_timeout=1000", "max_put=16777216"});
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  std::vector<std::unique_ptr<RawPeer>> peers;  // all of the staging, 16 MiB: a put takes it twice
  for (int i = 0; i < 2; ++i) {
    peers.push_back(std::make_unique<RawPeer>(socket()));
    peers.back()->hello();
    ASSERT_TRUE(peers.back()->send(
        encode_frame_header({kProtocolVersion, FrameType::put, 2, 8u << 20, 0})));
  }
  const std::vector<uint8_t> crumb(64);
  size_t sent = 0;
  for (auto& peer : peers) {
    Deadline deadline = soon();  // 8 MiB would have 9 s each, and each byte another second
    while (peer->send(crumb)) {
      sent += crumb.size();
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "dribbles on after " << sent;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  EXPECT_LT(sent, 64u << 10) << "9 s of crumbs and more";
  wait_for("ram_staging_bytes", 0);
  EXPECT_TRUE(b.store(random_tokens(rng_, 200)).ok());
}

// Decoded replies that nobody reads leave room for the stores of others.
TEST_F(ServerTest, RepliesThatNobodyReadsHoldUpNoStore) {
  start({}, {"progress_timeout=3600000", "max_put=4194304", "room_wait=2000"});
  ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(8, 128)}}));
  auto client = connect("raw");
  auto b = Bench::open(*client, model);
  auto tokens = random_tokens(rng_, 256);  // 8 MiB of rows, 16 MiB as f32
  ASSERT_TRUE(b.store(tokens).ok());
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 6; ++i) {
    peers.push_back(std::make_unique<RawPeer>(socket()));
    RawPeer& peer = *peers.back();
    peer.hello();
    ASSERT_TRUE(peer.send(flatten(request_frame(
        FrameType::open, 2, 0, OpenRequest{model, nullptr, false, PrefillMode::exact}))));
    auto opened = decode_reply<OpenReply>(FrameType::open_ok, peer.receive()->body.span());
    ASSERT_TRUE(opened.ok());
    FetchCall call;
    call.request.model = opened->model;
    call.request.query.tokens = plus_one(tokens);
    call.request.form = FetchForm::f32;
    ASSERT_TRUE(peer.send(flatten(request_frame(FrameType::fetch, 3, 0, call))));
  }
  Deadline deadline = soon();
  while (b.stat("fetches") < 6) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  EXPECT_GE(b.stat("ram_reply_bytes"), 16u << 20);
  for (int i = 0; i < 8; ++i) {
    auto stored = b.store(random_tokens(rng_, 64));
    EXPECT_TRUE(stored.ok()) << i << ": " << stored.status().to_string();
  }
  EXPECT_GE(b.stat("ram_reply_bytes"), 16u << 20) << "they are owed still";
}

// The daemon's log names what a failing device costs, with the reason, and nothing of the prompt.
TEST_F(ServerTest, ADamagedFileIsLoggedWithItsReason) {
  start();
  auto tokens = random_tokens(rng_, 64);
  {
    auto client = connect();
    auto b = Bench::open(*client, plain_model());
    ASSERT_EQ(b.store(tokens, Durability::durable)->level, Durability::durable);
  }
  daemon_->stop();
  std::string damaged;
  for (const auto& e : fs::recursive_directory_iterator(dir_.store())) {
    if (e.path().extension() == ".block") damaged = e.path();
  }
  {
    std::fstream file(damaged, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put('?');
  }
  std::string log = dir_.store() + "-run/log";
  int to = ::open(log.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600), own = ::dup(STDERR_FILENO);
  ASSERT_GE(::dup2(to, STDERR_FILENO), 0);
  start({"--set", "log.level=warn"});
  ::dup2(own, STDERR_FILENO);
  ::close(own);
  ::close(to);
  wait_for("scrub_damaged", 1);
  daemon_->stop();
  std::ifstream in(log);
  std::string text(std::istreambuf_iterator<char>(in), {});
  std::string name = fs::path(damaged).filename();
  EXPECT_NE(text.find("ssd: quarantined: " + name + ": "), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

}  // namespace
}  // namespace kv
