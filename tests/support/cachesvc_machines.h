// Machines for tests of the shared tier: real daemons on directories of their own, and a real
// cluster of three shards. One thread at a time.
#pragma once

#include <filesystem>
#include <fstream>

#include "proto/socket_client.h"
#include "tests/support/cachesvc_redis.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/support/daemon_process.h"

namespace kv {

using testing::RedisServer;
using testing::RedisShards;

inline constexpr uint32_t kBlocks = 12;
inline constexpr uint32_t kTokens = kBlocks * 256 + 10;
inline constexpr uint32_t kObjects = kBlocks + 1;  // and a tail

/// A machine: a daemon with a directory of its own.
class Machine {
 public:
  explicit Machine(const std::vector<std::string>& settings, std::string ram = "64MiB",
                   std::string ssd = "256MiB")
      : ram_(std::move(ram)), ssd_(std::move(ssd)) {
    start(settings);
  }
  /// A daemon on the same directory.
  void start(const std::vector<std::string>& settings) {
    std::ofstream file(at("c.toml"));
    file << "[remote]\n";
    for (const std::string& line : settings) file << line << "\n";
    file.close();
    daemon_ = DaemonProcess::start({"--config", at("c.toml"), "--socket", at("s"), "--dir",
                                    at("store"), "--ram", ram_, "--ssd", ssd_});
    EXPECT_NE(daemon_, nullptr);
  }
  Bench open(const std::string& ns = "test", const ModelSpec& model = plain_model(),
             std::shared_ptr<const Profile> profile = nullptr) {
    auto client = SocketClient::connect(at("s"), ns, {});
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    client_ = std::move(*client);
    return Bench::open(*client_, model, std::move(profile));
  }
  uint64_t stat(const std::string& name) { return stat_of(*client_, name); }
  /// Waits until all that was stored, so many objects, is in the tier.
  void written(uint64_t objects) {
    const auto there = [&] { return stat("remote_objects_written") + stat("remote_existed"); };
    for (int i = 0; i < 6000 && there() < objects; ++i) ::usleep(10'000);
    EXPECT_EQ(there(), objects);
  }
  /// Waits until the stat has the value. False: it never had.
  bool becomes(const std::string& name, uint64_t value) {
    for (int i = 0; i < 6000 && stat(name) != value; ++i) ::usleep(10'000);
    return stat(name) == value;
  }
  /// kill -9 of the daemon.
  void kill() {
    client_.reset();
    daemon_->kill();
  }
  /// The same; its directory is gone.
  void lose() {
    kill();
    std::filesystem::remove_all(at("store"));
  }
  std::string at(const char* name) const { return dir_.path() + "/" + name; }
  Client& client() { return *client_; }

 private:
  const std::string ram_, ssd_;
  testing::TempDir dir_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::unique_ptr<Client> client_;
};

/// One cluster for all tests of a process: each has a namespace of its own.
inline RedisShards& shards() {
  static RedisShards all;
  return all;
}
inline std::vector<std::string> settings() {
  return {"nodes = [\"127.0.0.1:" + std::to_string(shards()[0].port()) +
          "\", \"127.0.0.1:" + std::to_string(shards()[1].port()) + "\"]"};
}

inline std::vector<Token> tokens_of(int seed) {
  std::mt19937 rng(static_cast<unsigned>(seed));
  return random_tokens(rng, kTokens);
}

// The answer to a call whose question to the tier was answered: on a loaded machine one may wait in
// vain, which is a miss.
template <typename Call>
auto heard(Machine& machine, Call call) {
  for (int i = 0;; ++i) {
    const bool asks = machine.stat("remote_silent") == 0;
    const uint64_t unreached = machine.stat("remote_unreached");
    auto got = call();
    if ((asks && machine.stat("remote_unreached") == unreached) || i == 600) return got;
    ::usleep(100'000);
  }
}
inline Result<FetchReply> heard(Machine& machine, Bench& bench, const Sequence& tokens) {
  return heard(machine, [&] { return bench.fetch(tokens); });
}

}  // namespace kv
