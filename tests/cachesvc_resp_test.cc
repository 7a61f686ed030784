// The RESP port: what Redis' clients and LMCache's get, to the byte.
#include "tests/support/cachesvc_resp.h"

#include <thread>

namespace kv {
namespace {

using testing::resp_command;

TEST_F(RespTest, TheVerbsOfACacheAreAnsweredToTheByte) {
  start_resp();
  RespPeer peer(port_);
  ASSERT_TRUE(peer.connected());
  const std::string key = "model@00000000@0@00ff@salt", value = random_value(100'000);
  EXPECT_EQ(peer.call({"EXISTS", key}), ":0\r\n");
  EXPECT_EQ(peer.call({"GET", key}), kMiss);
  EXPECT_EQ(peer.call({"SET", key, value}), kOk);
  EXPECT_EQ(peer.call({"EXISTS", key}), ":1\r\n");
  EXPECT_EQ(peer.call({"GET", key}), bulk(value));
  EXPECT_EQ(peer.call({"GET", key}), bulk(value));
  EXPECT_EQ(peer.call({"DEL", key}), ":1\r\n");
  EXPECT_EQ(peer.call({"DEL", key}), ":0\r\n");
  EXPECT_EQ(peer.call({"EXISTS", key}), ":0\r\n");
  EXPECT_EQ(peer.call({"GET", key}), kMiss);
}

TEST_F(RespTest, ValuesOfEverySizeAndKeysOfAnyBytes) {
  start_resp();
  RespPeer peer(port_);
  std::string every_byte;
  for (int c = 0; c < 256; ++c) every_byte += static_cast<char>(c);
  const std::vector<std::string> keys{"", "k", every_byte, std::string(kMaxKeyBytes, 'k')};
  for (const std::string& key : keys) {
    for (size_t bytes : {size_t{0}, size_t{1}, kMaxRespKeptBytes - 1000, kMaxRespKeptBytes,
                         kMaxRespKeptBytes + 1, size_t{3} << 20}) {
      const std::string value = random_value(bytes);
      ASSERT_EQ(peer.call({"SET", key, value}), kOk) << key.size() << ", " << bytes;
      ASSERT_EQ(peer.call({"GET", key}), bulk(value)) << key.size() << ", " << bytes;
    }
  }
  EXPECT_EQ(peer.call({"DBSIZE"}), ":" + std::to_string(keys.size()) + "\r\n");
  // Longer keys are never stored.
  for (size_t bytes : {kMaxKeyBytes + 1, kMaxRespKeptBytes, kMaxRespKeptBytes + 1}) {
    const std::string key(bytes, 'k');
    for (size_t length : {size_t{3}, kMaxRespKeptBytes + 1}) {
      EXPECT_EQ(peer.call({"SET", key, std::string(length, 'v')}), kOk);
    }
    EXPECT_EQ(peer.call({"GET", key}), kMiss);
  }
  EXPECT_EQ(peer.call({"EXISTS", std::string(kMaxKeyBytes + 1, 'k')}), ":0\r\n");
  EXPECT_EQ(peer.call({"DEL", std::string(kMaxKeyBytes + 1, 'k')}), ":0\r\n");
}

TEST_F(RespTest, TheLastValueCountsAndTheSameOneIsNotStoredAgain) {
  start_resp();
  RespPeer peer(port_);
  for (size_t bytes : {size_t{10}, size_t{3} << 20}) {
    std::string value = random_value(bytes);
    EXPECT_EQ(peer.call({"SET", "key", value}), kOk);
    const uint64_t committed = stat("objects_committed");
    EXPECT_EQ(peer.call({"SET", "key", value}), kOk);
    EXPECT_EQ(stat("objects_committed"), committed) << "the same value";
    for (size_t at : {size_t{0}, bytes / 2, bytes - 1}) {
      value[at] = static_cast<char>(value[at] ^ 1);
      EXPECT_EQ(peer.call({"SET", "key", value}), kOk);
      EXPECT_EQ(peer.call({"GET", "key"}), bulk(value)) << bytes << ", " << at;
    }
    value += 'x';
    EXPECT_EQ(peer.call({"SET", "key", value}), kOk);
    EXPECT_EQ(peer.call({"GET", "key"}), bulk(value));
  }
}

TEST_F(RespTest, PipelinedAndInlineCommandsAreAnsweredInOrder) {
  start_resp();
  RespPeer peer(port_);
  std::string sent, expected;
  for (int i = 0; i < 300; ++i) {
    const std::string key = "k" + std::to_string(i % 290), value = std::to_string(i);
    sent += resp_command({"SET", key, value}) + "GET " + key + "\r\nEXISTS " + key + " none\r\n";
    expected += kOk + bulk(value) + ":1\r\n";
  }
  sent += "PING\r\nQUIT\r\nPING\r\n";
  expected += "+PONG\r\n+OK\r\n";
  std::thread sender([&] { EXPECT_TRUE(peer.send(sent)); });
  EXPECT_EQ(peer.receive(expected.size()), expected);
  sender.join();
  EXPECT_TRUE(peer.closed()) << "after QUIT";
}

TEST_F(RespTest, AValueThatDoesNotFitIsTakenAndDroppedAndNoEarlierOneStays) {
  start_resp();
  RespPeer peer(port_);
  EXPECT_EQ(peer.call({"SET", "key", "early"}), kOk);
  EXPECT_EQ(peer.call({"SET", "key", std::string(size_t{40} << 20, 'v')}), kOk);
  EXPECT_EQ(peer.call({"GET", "key"}), kMiss);
  EXPECT_EQ(peer.call({"SET", "key", "late"}), kOk);
  EXPECT_EQ(peer.call({"GET", "key"}), bulk("late")) << "in step";
  EXPECT_NE(peer.call({"INFO", "stats"}).find("cachesvc_values_dropped:1\r\n"), std::string::npos);
}

// Kept for the GET though the tier is filled many times over meanwhile.
TEST_F(RespTest, WhatExistsFoundIsThereForTheGet) {
  start_resp({"--set", "tier.ssd.limit=0"});
  RespPeer peer(port_), other(port_);
  const std::string value = random_value(size_t{1} << 20);
  EXPECT_EQ(peer.call({"SET", "held", value}), kOk);
  EXPECT_EQ(peer.call({"SET", "not held", value}), kOk);
  EXPECT_EQ(peer.call({"EXISTS", "held"}), ":1\r\n");
  std::string filling = random_value(size_t{1} << 20);  // once: a hold lasts 30 s
  for (int i = 0; i < 200; ++i) {
    filling[0] = static_cast<char>(i);
    ASSERT_EQ(other.call({"SET", "k" + std::to_string(i), filling}), kOk);
  }
  EXPECT_EQ(other.call({"GET", "not held"}), kMiss) << "the tier was not filled";
  EXPECT_EQ(other.call({"GET", "held"}), bulk(value));
  EXPECT_EQ(stat_of_port("namespace_holds"), 0u) << "the GET ends it";
}

// LMCache's client would wait for ever after `$-1`.
TEST_F(RespTest, WhatExistsFoundAndIsGoneEndsTheConnectionOfTheGet) {
  start_resp();
  {
    RespPeer peer(port_);
    for (const char* key : {"a", "b"}) EXPECT_EQ(peer.call({"SET", key, random_value(5000)}), kOk);
  }
  EXPECT_EQ(daemon_->stop(), 0);
  for (const auto& file : fs::recursive_directory_iterator(dir_.store())) {
    if (file.path().extension() != ".snapshot") continue;
    std::fstream(file.path(), std::ios::in | std::ios::out).seekp(1000).put('x').put('y');
  }
  start_resp();
  RespPeer peer(port_), other(port_);
  EXPECT_EQ(other.call({"GET", "b"}), kMiss) << "nobody told of it";
  EXPECT_EQ(peer.call({"EXISTS", "a"}), ":1\r\n");
  EXPECT_EQ(peer.call({"GET", "a"}), "");
  EXPECT_TRUE(peer.closed());
  EXPECT_EQ(other.call({"GET", "a"}), kMiss) << "once";
  EXPECT_EQ(other.call({"SET", "a", "v"}), kOk);
  EXPECT_EQ(other.call({"EXISTS", "a"}), ":1\r\n");
  EXPECT_EQ(other.call({"DEL", "a"}), ":1\r\n");
  EXPECT_EQ(other.call({"GET", "a"}), kMiss) << "who removes it ends the promise";
}

TEST_F(RespTest, HoldsAreBoundedAndExistsTellsTheTruthBeyondThem) {
  start_resp();
  RespPeer peer(port_);
  const size_t keys = kMaxRespHolds + 100;
  std::vector<std::string> exists{"EXISTS"};
  for (size_t i = 0; i < keys; ++i) {
    exists.push_back("k" + std::to_string(i));
    ASSERT_EQ(peer.call({"SET", exists.back(), "v"}), kOk);
    if (exists.size() <= 200 && i + 1 < keys) continue;
    EXPECT_EQ(peer.call(exists), ":" + std::to_string(exists.size() - 1) + "\r\n");
    exists.resize(1);
  }
  EXPECT_EQ(stat_of_port("namespace_holds"), kMaxRespHolds);
  // One hold a key.
  EXPECT_EQ(peer.call({"EXISTS", "k1", "k1", "none", "k1"}), ":3\r\n");
  EXPECT_EQ(stat_of_port("namespace_holds"), kMaxRespHolds);
  EXPECT_EQ(peer.call({"DEL", "k1", "none", "k2"}), ":2\r\n");
  EXPECT_EQ(peer.call({"EXISTS", "k1"}), ":0\r\n") << "though it was held";
}

TEST_F(RespTest, ErrorsAreThoseOfRedis) {
  start_resp();
  RespPeer peer(port_);
  EXPECT_EQ(peer.call({"FOO", "a", "b\r\nc"}),
            "-ERR unknown command 'FOO', with args beginning with: 'a' 'b  c' \r\n");
  EXPECT_EQ(peer.call({"GET"}), "-ERR wrong number of arguments for 'get' command\r\n");
  EXPECT_EQ(peer.call({"SET", "a"}), "-ERR wrong number of arguments for 'set' command\r\n");
  EXPECT_EQ(peer.call({"set", "a", "b", "EX", "10"}), "-ERR syntax error\r\n");
  EXPECT_EQ(peer.call({"SELECT", "1"}), "-ERR DB index is out of range\r\n");
  EXPECT_EQ(peer.call({"SELECT", "x"}), "-ERR value is not an integer or out of range\r\n");
  EXPECT_EQ(peer.call({"HELLO", "3"}), "-NOPROTO unsupported protocol version\r\n");
  EXPECT_EQ(peer.call({"HELLO", "2", "X"}), "-ERR Syntax error in HELLO option 'X'\r\n");
  EXPECT_EQ(peer.call({"ECHO", std::string(kMaxRespKeptBytes, 'x')}),
            "-ERR arguments over 32768 bytes\r\n");
  EXPECT_EQ(peer.call({"AUTH", "p"}).substr(0, 33), "-ERR AUTH <password> called witho");
  EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n") << "in step";
  peer.send("*1\r\nPING\r\n");
  EXPECT_EQ(peer.line(), "-ERR Protocol error: expected '$', got 'P'\r\n");
  EXPECT_TRUE(peer.closed());
  RespPeer browser(port_);
  browser.send("POST / HTTP/1.1\r\nSET a b\r\n");
  EXPECT_TRUE(browser.closed());
}

TEST_F(RespTest, WithAPasswordNothingIsAnsweredBeforeIt) {
  LogFile log(dir_.store() + ".log");
  log.hears([&] {
    auto args = with_password();
    args.insert(args.end(), {"--set", "log.level=info"});
    start_resp(args, {"handshake_timeout=2000"});
  });
  RespPeer peer(port_);
  const std::string no_auth = "-NOAUTH Authentication required.\r\n";
  const std::string wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
  for (const char* verb : {"GET", "EXISTS", "DEL", "PING"}) {
    EXPECT_EQ(peer.call({verb, "key"}), no_auth) << verb;
  }
  EXPECT_EQ(peer.call({"SET", "key", "value"}), no_auth);
  EXPECT_EQ(peer.call({"HELLO", "2"}).substr(0, 14), "-NOAUTH HELLO ");
  EXPECT_EQ(peer.call({"AUTH", "wrong"}), wrong);
  EXPECT_EQ(peer.call({"AUTH", "somebody", kPassword}), wrong);
  EXPECT_EQ(peer.call({"AUTH", "default", std::string(kPassword) + "x"}), wrong);
  EXPECT_EQ(peer.call({"AUTH", kPassword}), kOk);
  EXPECT_EQ(peer.call({"SET", "secret-key", "value"}), kOk);
  EXPECT_EQ(peer.call({"GET", "secret-key"}), bulk("value"));
  RespPeer named(port_);
  EXPECT_EQ(named.call({"AUTH", "default", kPassword}), kOk);
  RespPeer hello(port_);
  EXPECT_EQ(hello.call({"HELLO", "2", "AUTH", "default", kPassword, "SETNAME", "me"}), "*14\r\n");
  RespPeer large(port_);
  large.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$20000\r\n");
  EXPECT_EQ(large.line(), "-ERR Protocol error: unauthenticated bulk length\r\n");
  EXPECT_TRUE(large.closed());
  RespPeer silent(port_);
  EXPECT_TRUE(silent.closed()) << "no password in time";
  EXPECT_EQ(peer.call({"PING"}), "+PONG\r\n") << "the others stay";
  EXPECT_EQ(stat("denied"), 3u);
  EXPECT_EQ(log.lines_with("wrong password"), 1u) << "a line a minute";
  EXPECT_EQ(log.lines_with("secret-key") + log.lines_with(kPassword), 0u);
}

TEST_F(RespTest, WhatIsOnTheSsdSurvivesAKill) {
  start_resp();
  const std::string value = random_value(size_t{2} << 20);
  {
    RespPeer peer(port_);
    EXPECT_EQ(peer.call({"SET", "key", value}), kOk);
    EXPECT_EQ(peer.call({"SET", "small", "v"}), kOk);
    wait_for("ssd_objects", 4);
    wait_for("spill_queue_bytes", 0);
  }
  daemon_->kill();
  start_resp();
  RespPeer peer(port_);
  EXPECT_EQ(peer.call({"EXISTS", "key"}), ":1\r\n");
  EXPECT_EQ(peer.call({"GET", "key"}), bulk(value));
  EXPECT_EQ(peer.call({"GET", "small"}), bulk("v"));
  EXPECT_EQ(peer.call({"DBSIZE"}), ":2\r\n");
}

// RAM for 40 of them, the SSD for as many.
TEST_F(RespTest, WhatWasUsedLeastIsEvictedAndNoAnswerIsWrong) {
  start_resp();
  RespPeer peer(port_);
  std::map<std::string, std::string> stored;
  for (int i = 0; i < 150; ++i) {
    const std::string key = "k" + std::to_string(i);
    stored[key] = random_value(size_t{1} << 20);
    ASSERT_EQ(peer.call({"SET", key, stored[key]}), kOk);
  }
  size_t hits = 0;
  for (const auto& [key, value] : stored) {
    const std::string got = peer.call({"GET", key});
    if (got == kMiss) continue;
    ++hits;
    ASSERT_EQ(got, bulk(value)) << key;
  }
  EXPECT_GT(hits, 20u);
  EXPECT_LT(hits, 150u);
}

TEST_F(RespTest, TwoWritersOfOneKeyLeaveOneOfTheirValues) {
  start_resp();
  auto write = [&](char letter) {
    RespPeer peer(port_);
    for (int i = 0; i < 200; ++i) {
      ASSERT_EQ(peer.call({"SET", "key", std::string(40'000, letter)}), kOk);
      const std::string got = peer.call({"GET", "key"});
      // A miss lies between the removal of one value and the other one.
      ASSERT_TRUE(got == kMiss || got == bulk(std::string(40'000, 'a')) ||
                  got == bulk(std::string(40'000, 'b')));
    }
  };
  std::thread other([&] { write('a'); });
  write('b');
  other.join();
  RespPeer peer(port_);
  EXPECT_EQ(peer.call({"SET", "key", "last"}), kOk);
  EXPECT_EQ(peer.call({"GET", "key"}), bulk("last"));
}

// Another program has put a new profile in force: a connection that asks EXISTS alone learns of it.
TEST_F(RespTest, ExistsFollowsTheProfileInForce) {
  start_resp();
  RespPeer asks(port_);
  EXPECT_EQ(asks.call({"EXISTS", "key"}), ":0\r\n");
  auto client = connect("resp");
  auto opened = client->open({keyed_model(), nullptr, false, PrefillMode::exact}, soon());
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  auto other = std::make_shared<Profile>(*opened->profile);
  other->block_tokens *= 2;
  ASSERT_TRUE(client->open({keyed_model(), other, true, PrefillMode::exact}, soon()).ok());
  RespPeer stores(port_);
  EXPECT_EQ(stores.call({"SET", "key", "value"}), kOk);
  asks.call({"EXISTS", "key"});
  EXPECT_EQ(asks.call({"EXISTS", "key"}), ":1\r\n");
}

TEST_F(RespTest, ConnectionsCountAmongTheServers) {
  start_resp({"--set", "server.max_connections=3"});
  auto client = connect();
  RespPeer first(port_), second(port_);
  EXPECT_EQ(first.call({"PING"}), "+PONG\r\n");
  EXPECT_EQ(second.call({"PING"}), "+PONG\r\n");
  RespPeer third(port_);
  EXPECT_EQ(third.line(), "-ERR max number of clients reached\r\n");
  EXPECT_TRUE(third.closed());
  EXPECT_NE(first.call({"INFO", "clients"}).find("connected_clients:2\r\n"), std::string::npos);
}

TEST_F(RespTest, ANamespacesQuotaIsThePorts) {
  const std::string file = dir_.store() + ".toml";
  std::ofstream(file) << "[[namespace]]\nname = \"resp\"\nconnections = 2\nram = \"8MiB\"\n";
  start_resp({"--config", file});
  RespPeer first(port_), second(port_);
  EXPECT_EQ(first.call({"SET", "key", std::string(size_t{10} << 20, 'v')}), kOk);
  EXPECT_EQ(first.call({"GET", "key"}), kMiss) << "more than its share: dropped";
  EXPECT_EQ(first.call({"SET", "key", "v"}), kOk);
  EXPECT_EQ(second.call({"GET", "key"}), bulk("v"));
  RespPeer third(port_);
  EXPECT_EQ(third.line(), "-ERR max number of clients reached\r\n");
  EXPECT_TRUE(third.closed());
}

TEST_F(RespTest, ACommandThatStopsHalfWayEndsItsConnection) {
  start_resp({}, {"progress_timeout=200"});
  RespPeer peer(port_), idle(port_), large(port_);
  peer.send("*2\r\n$3\r\nGE");
  large.send("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1000000\r\nv");
  EXPECT_TRUE(peer.closed());
  EXPECT_TRUE(large.closed());
  EXPECT_EQ(idle.call({"GET", "k"}), kMiss) << "who has nothing to say stays";
  wait_for("ram_staging_bytes", 0);
}

// A peer may send anything, and go at any byte.
TEST_F(RespTest, AnythingThatIsSentLeavesTheDaemonAtWork) {
  start_resp();
  const std::string stream = resp_command({"SET", "key", random_value(50'000)}) +
                             resp_command({"GET", "key"}) + resp_command({"EXISTS", "key"}) +
                             resp_command({"DEL", "key"});
  for (size_t i = 0; i < 300; ++i) {
    std::string bytes = stream.substr(0, rng_() % stream.size());
    for (uint64_t n = rng_() % 4; n > 0 && !bytes.empty(); --n) {
      bytes[rng_() % std::min<size_t>(bytes.size(), 60)] = static_cast<char>(rng_());
    }
    RespPeer peer(port_);
    peer.send(bytes);
    if (i % 2 == 0) continue;
    ::shutdown(peer.descriptor(), SHUT_WR);
    while (!peer.receive(1000).empty()) {
    }
  }
  RespPeer peer(port_);
  EXPECT_EQ(peer.call({"SET", "key", "v"}), kOk);
  EXPECT_EQ(peer.call({"GET", "key"}), bulk("v"));
  peer.close();
  wait_for("sessions", 1);
  EXPECT_EQ(stat("reservations"), 0u);
}

TEST_F(RespTest, ADrainAnswersAndCloses) {
  start_resp();
  RespPeer peer(port_);
  EXPECT_EQ(peer.call({"SET", "key", "value"}), kOk);
  EXPECT_EQ(daemon_->stop(), 0);
  EXPECT_TRUE(peer.closed());
  start_resp();
  RespPeer after(port_);
  EXPECT_EQ(after.call({"GET", "key"}), bulk("value"));
}

// Debian's redis-cli (package redis-tools).
TEST_F(RespTest, RedisCliWorks) {
  if (std::system("command -v redis-cli >/dev/null") != 0) GTEST_SKIP() << "no redis-cli";
  start_resp(with_password());
  auto said = [&](const std::string& words) {
    const std::string file = dir_.store() + ".said";
    const std::string command = "redis-cli -p " + std::to_string(port_) + " -a '" + kPassword +
                                "' --no-auth-warning " + words + " >" + file + " 2>&1 </dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0) << words;
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_EQ(said("PING"), "PONG\n");
  EXPECT_EQ(said("SET key value"), "OK\n");
  EXPECT_EQ(said("GET key"), "value\n");
  EXPECT_EQ(said("EXISTS key none"), "1\n");
  EXPECT_EQ(said("DBSIZE"), "1\n");
  EXPECT_EQ(said("DEL key"), "1\n");
  EXPECT_EQ(said("GET key"), "\n");
  const std::string info = said("INFO");
  for (const char* part : {"# Server", "redis_version:", "# Clients", "# Memory", "# Keyspace"}) {
    EXPECT_NE(info.find(part), std::string::npos) << part;
  }
  EXPECT_EQ(said("HELLO 2").substr(0, 13), "server\nredis\n");
  EXPECT_EQ(said("NOSUCH x"), "ERR unknown command 'NOSUCH', with args beginning with: 'x' \n\n");
}

}  // namespace
}  // namespace kv
