// The real daemon over its real socket: round trips through every tier, restarts, limits, and peers
// that misbehave. Nothing here waits for time to pass but the daemon's own short limits.
#include "tests/support/cachesvc_server.h"

#include <poll.h>
#include <sys/stat.h>

#include <set>
#include <thread>

#include "codec/profile_file.h"

namespace kv {
namespace {

using testing::flatten;

TEST_F(ServerTest, StoreFetchKillRestartFetchFromSsd) {
  start();
  auto tokens = random_tokens(rng_, 75);
  ModelSpec model = plain_model(3);
  {
    auto client = connect();
    auto b = Bench::open(*client, model, make_profile(model, 4));
    auto stored = b.store(tokens, Durability::spilled);
    ASSERT_TRUE(stored.ok()) << stored.status().to_string();
    EXPECT_EQ(stored->level, Durability::spilled);
    auto hit = b.fetch(tokens);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    EXPECT_EQ(hit->tokens, 74u);
    EXPECT_EQ(hit->tier, Tier::ram);
    b.expect_serves(tokens, *hit);
    auto decoded = b.fetch(tokens, FetchForm::f32);
    ASSERT_TRUE(decoded.ok()) << decoded.status().to_string();
    EXPECT_EQ(decoded->tokens, 74u);
  }
  daemon_->kill();
  start();
  auto client = connect();
  auto b = Bench::open(*client, model);
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok()) << hit.status().to_string();
  EXPECT_EQ(hit->tokens, 74u);
  EXPECT_EQ(hit->tier, Tier::ssd);
  b.expect_serves(tokens, *hit);
  EXPECT_EQ(connect("other")->lookup({1, {}}, soon()).status().code(),
            StatusCode::invalid_argument);
  auto foreign = connect("other");
  auto other = Bench::open(*foreign, model);
  auto miss = other.fetch(tokens);
  ASSERT_TRUE(miss.ok());
  EXPECT_EQ(miss->tokens, 0u) << "another namespace sees nothing";
}

TEST_F(ServerTest, AClientOutlivesTheDaemon) {
  start();
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  auto tokens = random_tokens(rng_, 40);
  ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());
  auto reserved = b.reserve(random_tokens(rng_, 40));
  ASSERT_TRUE(reserved.ok());
  daemon_->kill();
  EXPECT_EQ(b.fetch(tokens).status().code(), StatusCode::unavailable);
  start();
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok()) << hit.status().to_string();
  EXPECT_EQ(hit->tokens, 39u);
  EXPECT_EQ(client->commit(reserved->reservation, Durability::accepted, soon()).status().code(),
            StatusCode::not_found);
}

TEST_F(ServerTest, EveryVerbOverTheSocket) {
  start();
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  auto tokens = random_tokens(rng_, 40);
  ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
  Query query;
  query.tokens = tokens;
  auto looked = client->lookup({b.opened.model, query}, soon());
  ASSERT_TRUE(looked.ok());
  EXPECT_EQ(looked->tokens, 39u);
  EXPECT_TRUE(client->prefetch({b.opened.model, query}, soon()).ok());
  auto reserved = b.reserve(random_tokens(rng_, 20));
  ASSERT_TRUE(reserved.ok());
  EXPECT_FALSE(reserved->needs.empty());
  EXPECT_TRUE(client->abort(reserved->reservation, soon()).ok());
  EXPECT_EQ(client->abort(reserved->reservation, soon()).code(), StatusCode::not_found);
  EXPECT_EQ(*client->erase_entry({b.opened.model, {random_tokens(rng_, 20), {}}}, soon()), 0u);
  auto entry = client->erase_entry({b.opened.model, query}, soon());
  ASSERT_TRUE(entry.ok()) << entry.status().to_string();
  EXPECT_EQ(*entry, 3u) << "two blocks and a tail";
  EXPECT_EQ(b.fetch(tokens)->tokens, 0u);
  ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
  query.tokens.resize(10);  // every object of the entry begins with these
  auto erased = client->erase(b.opened.model, query, soon());
  ASSERT_TRUE(erased.ok()) << erased.status().to_string();
  EXPECT_GT(*erased, 0u);
  EXPECT_EQ(b.fetch(tokens)->tokens, 0u);
  EXPECT_GT(b.stat("commits"), 0u);
  ASSERT_TRUE(b.store(tokens, Durability::durable).ok());
  auto all = client->erase(0, {}, soon());  // the whole namespace
  ASSERT_TRUE(all.ok()) << all.status().to_string();
  EXPECT_EQ(*all, 3u);
  EXPECT_EQ(b.fetch(tokens)->tokens, 0u);
}

// A directory keeps the profile that it has, and the log says so.
TEST_F(ServerTest, AnotherCodingIsForNewModelsOnly) {
  std::string file = dir_.store() + ".log";
  int own = ::dup(STDERR_FILENO);
  int log = ::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  for (const char* coding : {"codec.default=tq4", "codec.default=tq84"}) {
    ASSERT_GE(::dup2(log, STDERR_FILENO), 0);  // the daemon inherits it
    start({"--set", "log.level=info", "--set", "log.format=text", "--set", coding});
    ::dup2(own, STDERR_FILENO);
    auto client = connect();
    auto known = Bench::open(*client, model_of({LayerSpec{{full_part()}}}));
    EXPECT_EQ(known.opened.parts[0].active_k_bits, 4) << coding;
    ASSERT_EQ(daemon_->stop(), 0);
  }
  ::close(own);
  ::close(log);
  std::ifstream in(file);
  std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(text.find("codec tq84 (K 8 bits, V 4 bits)"), text.npos) << text;
  std::string kept = "tq4 (the profile in force, kept until it is replaced; codec.default is tq84)";
  size_t at = text.find(kept);
  ASSERT_NE(at, text.npos) << text;
  EXPECT_EQ(text.find(kept, at + 1), text.npos) << "said of the first start too: " << text;
}

TEST_F(ServerTest, AProfileFileIsForItsModel) {
  ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{full_part()}}}), other = model;
  other.fingerprint.bytes[5] ^= 1;
  CodingSettings settings;
  settings.layers = {{0, 8, 3}};
  auto profile = plain_profile(model, settings);
  ASSERT_TRUE(profile.ok()) << profile.status().to_string();
  const std::string file = dir_.store() + ".profile";
  ASSERT_TRUE(write_profile_file(file, model, Id{}, *profile).ok());
  start({"--set", "codec.profiles=" + file});
  auto client = connect();
  auto tuned = Bench::open(*client, model);
  ASSERT_EQ(tuned.opened.parts.size(), 2u);
  EXPECT_EQ(tuned.opened.parts[0].active_k_bits, 8);
  EXPECT_EQ(tuned.opened.parts[0].active_v_bits, 3);
  EXPECT_EQ(tuned.opened.parts[1].active_k_bits, 4);
  EXPECT_EQ(tuned.opened.profile->block_tokens, 16u) << "the server's, not the file's";
  auto plain = Bench::open(*client, other);
  EXPECT_EQ(plain.opened.parts[0].active_k_bits, 0) << "the daemon's own coding";
  ASSERT_EQ(daemon_->stop(), 0);
  std::string said;
  EXPECT_NE(run({"serve", "--set", "codec.profiles=" + file + ".no"}, &said), 0);
  EXPECT_NE(said.find("codec.profiles: no profile file " + file + ".no"), said.npos) << said;
}

// The daemon's own tokens a block are kept, and its restart serves the same rows.
TEST_F(ServerTest, AProfileFileMayHaveTransforms) {
  const ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{window_part(20, 2)}}});
  const auto profile = make_profile(model, kTransformWord, 256);
  const std::string file = dir_.store() + ".profile";
  ASSERT_TRUE(write_profile_file(file, model, Id{}, *profile).ok());
  const auto tokens = random_tokens(rng_, 50);
  for (const bool first : {true, false}) {
    start({"--set", "codec.profiles=" + file});
    auto client = connect();
    auto b = Bench::open(*client, model);
    EXPECT_EQ(b.opened.profile->transforms->set, profile->transforms->set);
    EXPECT_EQ(b.opened.profile->block_tokens, 16u);
    for (const CodingReport& part : b.opened.parts) EXPECT_EQ(part.active_v_bits, kTransformWord);
    if (first) {
      ASSERT_TRUE(b.store(tokens, Durability::spilled).ok());
    }
    for (FetchForm form : {FetchForm::stored, FetchForm::f16}) {
      auto hit = b.fetch(plus_one(tokens), form);
      ASSERT_TRUE(hit.ok()) << hit.status().to_string();
      EXPECT_EQ(hit->tokens, 50u);
      b.expect_serves(tokens, *hit);
    }
    daemon_->kill();
  }
}

TEST_F(ServerTest, WhatCannotBeCodedIsInTheLogOncePerModel) {
  std::string file = dir_.store() + ".log";
  int own = ::dup(STDERR_FILENO);
  int log = ::open(file.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  ASSERT_GE(::dup2(log, STDERR_FILENO), 0);  // the daemon inherits it
  start({"--set", "log.level=info", "--set", "log.format=text", "--set", "codec.default=tq4"});
  ::dup2(own, STDERR_FILENO);
  ::close(own);
  ::close(log);
  PartSpec latent, shared = window_part(8, 0);
  latent.kind = PartKind::latent;
  latent.heads = 1;
  latent.k_dim = 24;
  shared.v_dim = 0;
  ModelSpec model = model_of({LayerSpec{{full_part()}}, LayerSpec{{latent}}, LayerSpec{{latent}},
                              LayerSpec{{shared, pooled_part(4, true)}},
                              LayerSpec{{state_part(SnapshotPlace::checkpoint)}}});
  for (int i = 0; i < 3; ++i) {
    auto client = connect();
    auto b = Bench::open(*client, model);
    auto stats = client->stats(soon());
    ASSERT_TRUE(stats.ok());
    ASSERT_EQ(stats->models.size(), 1u);
    for (const auto& parts : {stats->models[0].second, b.opened.parts}) {
      ASSERT_EQ(parts.size(), 6u);
      EXPECT_EQ(parts[0].active_k_bits, 4);
      for (size_t p = 1; p < 6; ++p) {
        EXPECT_EQ(parts[p].requested_k_bits, 4) << p;
        EXPECT_EQ(parts[p].active_k_bits, 0) << p;
        EXPECT_FALSE(parts[p].reason.empty()) << p;
      }
    }
  }
  Bench::open(*connect(), model_of(model.layers, 9));  // another model of the same profile
  ASSERT_EQ(daemon_->stop(), 0);
  std::ifstream in(file);
  std::string text(std::istreambuf_iterator<char>(in), {});
  EXPECT_NE(text.find("model test-9: layers 1-2 latent"), text.npos) << text;
  for (std::string line : {"layers 1-2 latent: requested tq4, active raw: latent",
                           "layers 3 window: requested tq4, active raw: K and V in one storage",
                           "layers 3 pooled: requested tq4, active raw: pooled",
                           "layers 4 state: requested tq4, active raw: state"}) {
    line = "model test-7: " + line;
    size_t at = text.find(line);
    ASSERT_NE(at, text.npos) << line << " in " << text;
    EXPECT_EQ(text.find(line, at + 1), text.npos) << line << " twice in " << text;
  }
}

TEST_F(ServerTest, WithAKeyNothingLiesInPlainAndAnotherKeyServesNothing) {
  std::string key = dir_.store() + "-key";
  std::ofstream(key) << std::string(32, 'k');
  ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
  std::vector<Token> canary(75, 0x4e4b4f54);  // "TOKN"
  auto plain_files = [&] {
    size_t found = 0;
    for (const auto& entry : fs::recursive_directory_iterator(dir_.store())) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path(), std::ios::binary);
      std::string bytes((std::istreambuf_iterator<char>(in)), {});
      found += bytes.find("TOKNTOKN") != bytes.npos || bytes.find("a-tenant") != bytes.npos;
    }
    return found;
  };
  auto tokens_of = [&] {
    auto client = connect("a-tenant");
    auto hit = Bench::open(*client, plain_model()).fetch(canary);
    EXPECT_TRUE(hit.ok()) << hit.status().to_string();
    return hit.ok() ? hit->tokens : 0;
  };
  std::vector<std::string> with_key = {"--set", "tier.ssd.key_file=" + key};
  for (const auto& args : {with_key, std::vector<std::string>()}) {
    start(args);
    {
      auto client = connect("a-tenant");
      auto b = Bench::open(*client, plain_model());
      ASSERT_EQ(b.store(canary, Durability::durable)->level, Durability::durable);
    }
    EXPECT_EQ(plain_files() > 0, args.empty());
    std::ifstream limits("/proc/" + std::to_string(daemon_->pid()) + "/limits");
    std::string text((std::istreambuf_iterator<char>(limits)), {});
    std::string core = text.substr(text.find("Max core file size") + 18, 30);
    if (!args.empty()) {
      EXPECT_EQ(core[core.find_first_not_of(' ')], '0') << core;
    }
    daemon_->kill();
    start(args);
    EXPECT_EQ(tokens_of(), 74u) << "what it wrote itself";
    daemon_->kill();
    if (args.empty()) break;
    start({"--set", "tier.ssd.key_file=ephemeral"});
    EXPECT_EQ(tokens_of(), 0u);
    EXPECT_GT(stat("ssd_other_key_files"), 0u);
    EXPECT_EQ(stat("quarantined"), 0u);
    daemon_->kill();
  }
}

TEST_F(ServerTest, SigtermDrainsAndNothingIsLost) {
  start();
  auto tokens = random_tokens(rng_, 400);
  {
    auto client = connect();
    auto b = Bench::open(*client, plain_model());
    ASSERT_TRUE(b.store(tokens, Durability::accepted).ok());
  }
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_FALSE(fs::exists(socket()));
  start();
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  auto hit = b.fetch(tokens);
  ASSERT_TRUE(hit.ok());
  EXPECT_EQ(hit->tokens, 399u) << "what was only accepted is spilled by the drain";
  b.expect_serves(tokens, *hit);
}

TEST_F(ServerTest, ModesOfSocketAndDirectories) {
  start();
  struct stat st;
  ASSERT_EQ(::stat(socket().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  ASSERT_EQ(::stat(fs::path(socket()).parent_path().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
  ASSERT_EQ(::stat(dir_.store().c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0700u);
}

TEST_F(ServerTest, ASecondDaemonExits75) {
  start();
  std::string said;
  EXPECT_EQ(run({"serve", "--dir", dir_.store(), "--socket", dir_.store() + "-two/s.sock"}, &said),
            75)
      << said;
  EXPECT_NE(said.find(dir_.store()), std::string::npos) << said;
  EXPECT_EQ(
      run({"serve", "--dir", dir_.store() + "2", "--ssd", "64MiB", "--socket", socket()}, &said),
      75)
      << said;
  EXPECT_TRUE(RawPeer(socket()).connected()) << "the first one's socket is untouched";
}

TEST_F(ServerTest, StaleAndForeignFilesAtTheSocketsPlace) {
  start();
  daemon_->kill();
  ASSERT_TRUE(fs::exists(socket())) << "a killed daemon leaves its socket";
  start();
  daemon_->stop();
  std::ofstream(socket()) << "precious";
  std::string said;
  EXPECT_EQ(run({"serve", "--dir", dir_.store(), "--ssd", "64MiB", "--socket", socket()}, &said),
            78)
      << said;
  EXPECT_EQ(fs::file_size(socket()), 8u);
  fs::create_directory(dir_.store() + "-open");
  fs::permissions(dir_.store() + "-open", fs::perms::all);
  EXPECT_EQ(run({"serve", "--ssd", "0", "--socket", dir_.store() + "-open/s.sock"}, &said), 78)
      << said;
}

TEST_F(ServerTest, EveryPrefixOfEveryGoldenFrameIsACleanEnd) {
  start();
  for (const auto& [name, bytes] : testing::sample_frames()) {
    size_t step = 1 + bytes.size() / 24;
    for (size_t n = 1; n < bytes.size(); n += step) {
      RawPeer peer(socket());
      peer.hello();
      peer.send(std::span(bytes).first(n));
      peer.shut_writes();
      while (peer.receive()) {
      }
    }
  }
  wait_for("sessions", 1);
  EXPECT_EQ(stat("ram_staging_bytes"), 0u);
  EXPECT_EQ(stat("reservations"), 0u);
}

TEST_F(ServerTest, RandomBytesNeverHarmTheDaemon) {
  start();
  testing::Random random(99);
  auto samples = testing::sample_frames();
  for (int i = 0; i < 300; ++i) {
    RawPeer peer(socket());
    if (random.coin()) peer.hello();
    std::vector<uint8_t> bytes = random.bytes(1 + random.below(300));
    if (random.coin()) {  // a real header in front of a broken body
      auto it = samples.begin();
      std::advance(it, static_cast<long>(random.below(samples.size())));
      bytes = it->second;
      if (bytes.size() > kFrameHeaderBytes) {
        bytes[kFrameHeaderBytes + random.below(bytes.size() - kFrameHeaderBytes)] ^= 0x55;
      }
    }
    peer.send(bytes);
    peer.shut_writes();
    while (peer.receive()) {
    }
  }
  wait_for("sessions", 1);
  EXPECT_EQ(stat("ram_staging_bytes"), 0u);
  auto client = connect();
  auto b = Bench::open(*client, plain_model());
  EXPECT_TRUE(b.store(random_tokens(rng_, 20)).ok());
}

TEST_F(ServerTest, APeerGoneInTheMiddleOfAPutFreesEverything) {
  start();
  const uint64_t most = stat("ram_used_bytes") + (64u << 10);
  {
    RawPeer peer(socket());
    peer.hello();
    ModelSpec model = plain_model();
    peer.send(flatten(request_frame(FrameType::open, 2, 0,
                                    OpenRequest{model, nullptr, false, PrefillMode::exact})));
    auto opened = decode_reply<OpenReply>(FrameType::open_ok, peer.receive()->body.span());
    ASSERT_TRUE(opened.ok());
    auto tokens = random_tokens(rng_, 32);
    ReserveRequest request{opened->model, opened->realm.profile, {tokens, {}}};
    peer.send(flatten(request_frame(FrameType::reserve, 3, 0, request)));
    auto reserved = decode_reply<ReserveReply>(FrameType::reserve_ok, peer.receive()->body.span());
    ASSERT_TRUE(reserved.ok());
    PutRequest put = make_put(model, 16, tokens, reserved->needs.at(0), reserved->reservation);
    auto bytes = flatten(put_frame(4, 0, put));
    peer.send(std::span(bytes).first(bytes.size() / 2));
    wait_for("reservations", 1);
    Deadline deadline = soon();
    while (stat("ram_staging_bytes") == 0) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
  wait_for("reservations", 0);
  wait_for("ram_staging_bytes", 0);
  Deadline deadline = soon();
  while (stat("ram_used_bytes") > most) ASSERT_LT(std::chrono::steady_clock::now(), deadline);
}

TEST_F(ServerTest, TooManyConnectionsAreToldSo) {
  start({"--set", "server.max_connections=3"});
  std::vector<std::unique_ptr<RawPeer>> peers;
  for (int i = 0; i < 3; ++i) {
    peers.push_back(std::make_unique<RawPeer>(socket()));
    peers.back()->hello();
  }
  RawPeer late(socket());
  EXPECT_EQ(late.receive_error(), StatusCode::busy);
  EXPECT_FALSE(late.receive().has_value());
  peers.pop_back();
  Deadline deadline = soon();
  while (!SocketClient::connect(socket(), "test", {}).ok()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
  }
}

TEST_F(ServerTest, SilentPeersAreCut) {
  start({}, {"handshake_timeout=50"});
  RawPeer mute(socket());
  EXPECT_FALSE(mute.receive().has_value()) << "no hello in time";
  daemon_->stop();
  start({}, {"progress_timeout=50", "idle_timeout=100"});
  RawPeer half(socket());
  half.hello();
  auto bytes = testing::sample_frames()["lookup"];
  half.send(std::span(bytes).first(40));
  EXPECT_FALSE(half.receive().has_value()) << "half a frame";
  RawPeer idle(socket());
  idle.hello();
  EXPECT_FALSE(idle.receive().has_value()) << "idle";
}

TEST_F(ServerTest, AReaderThatNeverReadsIsCut) {
  start({}, {"progress_timeout=1000", "max_unsent=65536"});
  auto client = connect("raw");
  ModelSpec model = model_of(std::vector<LayerSpec>(8, LayerSpec{{full_part(8, 128)}}));
  auto b = Bench::open(*client, model);
  auto tokens = random_tokens(rng_, 128);  // 4 MiB of rows
  ASSERT_TRUE(b.store(tokens).ok());
  RawPeer peer(socket());
  peer.hello();
  peer.send(flatten(request_frame(FrameType::open, 2, 0,
                                  OpenRequest{model, nullptr, false, PrefillMode::exact})));
  auto opened = decode_reply<OpenReply>(FrameType::open_ok, peer.receive()->body.span());
  FetchCall call;
  call.request.model = opened->model;
  call.request.query.tokens = tokens;
  for (uint64_t id = 3; id < 40; ++id) {
    if (!peer.send(flatten(request_frame(FrameType::fetch, id, 0, call)))) break;
  }
  wait_for("sessions", 2);  // ours and the one that asks
  EXPECT_TRUE(b.fetch(tokens).ok()) << "others go on";
}

TEST_F(ServerTest, ManyRequestsOfOneConnectionAreAllAnswered) {
  start({}, {"max_in_flight=2"});
  RawPeer peer(socket());
  peer.hello();
  std::vector<uint8_t> burst;
  for (uint64_t id = 100; id < 200; ++id) {
    auto frame = flatten(request_frame(FrameType::stats, id, 0, Empty{}));
    burst.insert(burst.end(), frame.begin(), frame.end());
  }
  ASSERT_TRUE(peer.send(burst));
  std::set<uint64_t> ids;
  for (int i = 0; i < 100; ++i) {
    auto frame = peer.receive();
    ASSERT_TRUE(frame.has_value());
    ASSERT_EQ(frame->header.type, FrameType::stats_ok);
    ids.insert(frame->header.request);
  }
  EXPECT_EQ(ids.size(), 100u);
}

TEST_F(ServerTest, AReplyOverTheClientsLimitIsRefusedWhole) {
  start();
  auto client = connect("raw");
  auto b = Bench::open(*client, plain_model());
  auto tokens = random_tokens(rng_, 64);
  ASSERT_TRUE(b.store(tokens).ok());
  SocketClientOptions options;
  options.max_reply_bytes = 1000;
  auto small = SocketClient::connect(socket(), "raw", options);
  ASSERT_TRUE(small.ok());
  auto b2 = Bench::open(**small, plain_model());
  EXPECT_EQ(b2.fetch(tokens).status().code(), StatusCode::resource_exhausted);
  EXPECT_TRUE((*small)->stats(soon()).ok()) << "the connection goes on";
}

// Large bodies lie in memory that later replies use again, but never while somebody holds them.
TEST_F(ServerTest, LeasesOfLargeRepliesKeepTheirBytes) {
  start();
  auto client = connect();
  ModelSpec model = model_of(std::vector<LayerSpec>(4, LayerSpec{{full_part(8, 128)}}));
  auto b = Bench::open(*client, model);
  std::vector<std::vector<Token>> prompts;
  for (int i = 0; i < 3; ++i) {
    prompts.push_back(random_tokens(rng_, 33));  // blocks of 256 KiB
    ASSERT_TRUE(b.store(prompts.back()).ok());
  }
  std::vector<std::pair<size_t, FetchReply>> held;
  for (size_t i = 0; i < 12; ++i) {
    size_t which = rng_() % prompts.size();
    auto hit = b.fetch(prompts[which]);
    ASSERT_TRUE(hit.ok()) << hit.status().to_string();
    ASSERT_EQ(hit->tokens, 32u);
    held.emplace_back(which, std::move(*hit));
    if (held.size() > 3) held.erase(held.begin() + static_cast<long>(rng_() % 4));
    if (i == 11) client.reset();
    for (const auto& [prompt, reply] : held) b.expect_serves(prompts[prompt], reply);
  }
}

TEST_F(ServerTest, ClientsInParallel) {
  start();
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      auto client = connect("ns" + std::to_string(t % 2));
      auto b = Bench::open(*client, plain_model());
      std::mt19937 rng(t);
      for (int i = 0; i < 10; ++i) {
        auto tokens = random_tokens(rng, 30 + rng() % 60);
        auto stored = b.store(tokens, i % 2 ? Durability::spilled : Durability::accepted);
        EXPECT_TRUE(stored.ok()) << stored.status().to_string();
        auto hit = b.fetch(tokens);
        ASSERT_TRUE(hit.ok()) << hit.status().to_string();
        EXPECT_EQ(hit->tokens, tokens.size() - 1);
        b.expect_serves(tokens, *hit);
      }
    });
  }
  for (auto& t : threads) t.join();
}

}  // namespace
}  // namespace kv
