// Redis servers for tests: the real engine as children, alone or as a cluster of three shards with
// a replica each, on loopback; and a shared tier that a test drives step by step.
//
// Tests skip where redis-server or redis-cli is not installed. A server dies with the test. One
// thread at a time.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <boost/asio/executor_work_guard.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cachesvc/remote/tier.h"
#include "tests/support/storage_testing.h"

namespace kv::testing {

inline bool redis_installed() {
  return ::access("/usr/bin/redis-server", X_OK) == 0 && ::access("/usr/bin/redis-cli", X_OK) == 0;
}
#define KV_NEEDS_REDIS() \
  if (!::kv::testing::redis_installed()) GTEST_SKIP() << "redis-server is not installed"

inline uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(a);
  KV_CHECK(::bind(fd, reinterpret_cast<sockaddr*>(&a), size) == 0);
  KV_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size) == 0);
  ::close(fd);
  return ntohs(a.sin_port);
}

/// A child's standard output, to its end. No shell.
inline std::string output_of(std::vector<std::string> words) {
  int out[2];
  KV_CHECK(::pipe2(out, O_CLOEXEC) == 0);
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(out[1], STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  ::close(out[1]);
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n; (n = ::read(out[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(n));
  }
  ::close(out[0]);
  ::waitpid(pid, nullptr, 0);
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

class RedisServer {
 public:
  /// `args` follow the usual ones; with `tls` it listens with TLS only.
  explicit RedisServer(std::vector<std::string> args = {}, bool tls = false,
                       uint16_t port = free_port())
      : port_(port), args_(std::move(args)), tls_(tls) {
    start();
  }
  ~RedisServer() { kill(); }
  RedisServer(const RedisServer&) = delete;  // owns the child
  RedisServer& operator=(const RedisServer&) = delete;

  /// Returns once it accepts connections.
  void start() {
    const std::string port = std::to_string(port_);
    std::vector<std::string> words = {
        "redis-server", "--bind",    "127.0.0.1", "--save",    "",
        "--appendonly", "no",        "--dir",     dir_.path(), "--loglevel",
        "warning",      "--logfile", "redis.log", "--port",    tls_ ? "0" : port};
    if (tls_) words.insert(words.end(), {"--tls-port", port});
    words.insert(words.end(), args_.begin(), args_.end());
    std::vector<char*> argv;
    for (auto& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::execv("/usr/bin/redis-server", argv.data());
      ::_exit(127);
    }
    while (!accepts()) {
      if (::waitpid(pid_, nullptr, WNOHANG) != 0) {
        pid_ = -1;
        return;  // its port was taken: what asks it finds nobody
      }
      ::usleep(5000);
    }
  }
  /// False: it has ended by itself, as when a port was taken.
  bool runs() {
    if (pid_ > 0 && ::waitpid(pid_, nullptr, WNOHANG) != 0) pid_ = -1;
    return pid_ > 0;
  }
  void signal(int which) const { ::kill(pid_, which); }
  void kill() {
    if (pid_ <= 0) return;
    signal(SIGKILL);
    ::waitpid(std::exchange(pid_, -1), nullptr, 0);
  }

  /// Output of redis-cli.
  std::string cli(std::vector<std::string> words) const {
    words.insert(words.begin(), {"redis-cli", "-p", std::to_string(port_)});
    return output_of(std::move(words));
  }
  uint16_t port() const { return port_; }
  NodeAddress address() const { return {"127.0.0.1", port_}; }

 private:
  bool accepts() const {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(port_);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const bool ok = ::connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)) == 0;
    ::close(fd);
    return ok;
  }

  TempDir dir_{true};
  const uint16_t port_;
  const std::vector<std::string> args_;
  const bool tls_;
  pid_t pid_ = -1;
};

/// Three shards with a replica each. Its first three servers are the first masters.
class RedisShards {
 public:
  RedisShards() {
    // A port that was free may be taken by another's connection meanwhile.
    for (int i = 0; i < 5 && !create(); ++i) servers_.clear();
    if (servers_.empty()) ADD_FAILURE() << "no cluster: " << created_;
  }
  RedisServer& operator[](size_t i) { return *servers_[i]; }
  size_t size() const { return servers_.size(); }
  const std::string& created() const { return created_; }
  std::string id_of(size_t i) { return servers_[i]->cli({"CLUSTER", "MYID"}); }
  /// The slots as a server sees them, by the client's own parser.
  SlotMap map(size_t server = 0) {
    boost::asio::io_context io;
    const RemoteLinkOptions options;
    SlotMap map;
    auto link = std::make_shared<RemoteLink>(io, servers_[server]->address(), options);
    link->start();
    link->send({{remote_words({"CLUSTER", "SLOTS"})}, {}, nullptr, [&](Result<RespReply> reply) {
                  auto decoded = reply.ok() ? SlotMap::decode(*reply, servers_[server]->address())
                                            : Result<SlotMap>(reply.status());
                  if (decoded.ok()) map = std::move(*decoded);
                  link->close({StatusCode::unavailable, "it has answered"});
                }});
    io.run();
    return map;
  }
  /// Index of the slot's master.
  size_t master_of(uint16_t slot) {
    const SlotMap all = map();
    const Shard* shard = all.shard_of(slot);
    for (size_t i = 0; shard != nullptr && i < servers_.size(); ++i) {
      if (servers_[i]->port() == shard->master.port) return i;
    }
    return 0;
  }
  /// True once the first masters' replicas have all that was written to them.
  bool copied() {
    return soon([&] {
      for (size_t i = 0; i < 3; ++i) {
        const std::string says = servers_[i]->cli({"INFO", "replication"});
        const auto number = [&says](const std::string& name) {
          const size_t at = says.find(name);
          return at == std::string::npos ? 0 : std::stoull(says.substr(at + name.size()));
        };
        if (number(",offset=") < number("master_repl_offset:")) return false;
      }
      return true;
    });
  }

 private:
  // All servers meet all others, as news by way of a third take seconds. A replica is told of once
  // its master has pinged it, which by default takes ten.
  bool create() {
    std::vector<std::string> bus;
    for (int i = 0; i < 6; ++i) {
      bus.push_back(std::to_string(free_port()));
      servers_.push_back(std::make_unique<RedisServer>(std::vector<std::string>{
          "--cluster-enabled", "yes", "--cluster-port", bus.back(), "--cluster-node-timeout",
          "2000", "--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1"}));
    }
    const std::array<const char*, 4> slots = {"0", "5461", "10923", "16384"};
    for (size_t i = 0; i < 6; ++i) {
      const RedisServer& server = *servers_[i];
      created_ = server.cli({"CLUSTER", "SET-CONFIG-EPOCH", std::to_string(i + 1)});
      if (i < 3) {
        const int last = std::stoi(slots[i + 1]) - 1;
        created_ += server.cli({"CLUSTER", "ADDSLOTSRANGE", slots[i], std::to_string(last)});
      }
      if (!servers_[i]->runs()) return false;
      for (size_t j = 0; j < i; ++j) {
        server.cli({"CLUSTER", "MEET", "127.0.0.1", std::to_string(servers_[j]->port()), bus[j]});
      }
    }
    for (size_t i = 3; i < 6; ++i) {
      if (!servers_[i - 3]->runs()) return false;
      const std::string master = id_of(i - 3);
      if (!soon([&] {
            created_ = servers_[i]->cli({"CLUSTER", "REPLICATE", master});
            return created_ == "OK";
          })) {
        return false;
      }
    }
    return soon([&] {
      for (size_t s = 0; s < 6; ++s) {
        created_ = servers_[s]->cli({"CLUSTER", "INFO"});
        if (created_.find("cluster_state:ok") == std::string::npos) return false;
        size_t whole = 0;  // shards that it knows with their replica
        const SlotMap seen = map(s);
        for (const Shard& shard : seen.shards()) whole += shard.replicas.size() == 1;
        if (whole != 3) return false;
      }
      return true;
    });
  }
  template <typename Predicate>
  static bool soon(Predicate so) {
    for (int i = 0; i < 1500; ++i, ::usleep(20'000)) {
      if (so()) return true;
    }
    return false;
  }

  std::vector<std::unique_ptr<RedisServer>> servers_;
  std::string created_;
};

/// A shared tier and its loop; every verb runs the loop until it is answered.
class RemoteTierRig {
 public:
  using Clock = RemoteTier::Clock;
  explicit RemoteTierRig(std::vector<NodeAddress> seeds, RemoteTierOptions options = {},
                         RemoteLinkOptions link = {},
                         std::chrono::milliseconds hedge_after = std::chrono::seconds(10))
      : cluster(io, RedisOptions{std::move(seeds), std::move(link), hedge_after}),
        tier(cluster, std::move(options)) {}
  ~RemoteTierRig() {
    cluster.close();
    guard_.reset();
    io.run();
  }
  RemoteTierRig(const RemoteTierRig&) = delete;  // handlers point here
  RemoteTierRig& operator=(const RemoteTierRig&) = delete;

  Clock::time_point soon() const { return Clock::now() + patience; }
  std::vector<RemoteFound> find(const std::vector<RemoteName>& names) {
    return wait<std::vector<RemoteFound>>(
        [&](auto done) { tier.find(names, soon(), std::move(done)); });
  }
  Result<FileImage> get(const RemoteFound& found) {
    return wait<Result<FileImage>>([&](auto done) { tier.get(found, soon(), std::move(done)); });
  }
  Result<RemotePut> put(const FileImage& image, const RemoteName& name) {
    return wait<Result<RemotePut>>(
        [&](auto done) { tier.put(image, name, soon(), std::move(done)); });
  }
  RemoteErased erase(const std::vector<RemoteName>& names) {
    return wait<RemoteErased>([&](auto done) { tier.erase(names, soon(), std::move(done)); });
  }
  Result<RemoteProfile> agree(std::shared_ptr<const Profile> own, const Id& model = {}) {
    return wait<Result<RemoteProfile>>([&](auto done) {
      tier.agree(remote_space("tenant"), model, std::move(own), soon(), std::move(done));
    });
  }
  RemoteErased erase_all(const std::string& ns = "tenant") {
    return wait<RemoteErased>(
        [&](auto done) { tier.erase_all(remote_space(ns), soon(), std::move(done)); });
  }
  /// Runs the loop until `begin` has called what it is given.
  template <typename T, typename Begin>
  T wait(Begin begin) {
    std::optional<T> result;
    begin([&](T value) { result.emplace(std::move(value)); });
    while (!result) io.run_one();
    return std::move(*result);
  }
  /// Runs the loop until it is so; a minute of waiting fails the test.
  template <typename Predicate>
  void run_until(Predicate over) {
    const auto end = Clock::now() + std::chrono::minutes(1);
    while (!over()) {
      if (Clock::now() > end) FAIL() << "in vain for a minute";
      io.run_one_for(std::chrono::milliseconds(5));
    }
  }

  boost::asio::io_context io;
  RedisCluster cluster;
  RemoteTier tier;
  std::chrono::milliseconds patience{20'000};

 private:
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> guard_{
      io.get_executor()};
};

/// A key to seal with.
inline std::shared_ptr<const SealKey> key_of(uint8_t byte) {
  std::array<uint8_t, kSealKeyBytes> secret;
  secret.fill(byte);
  return *SealKey::create(secret);
}

/// A chain of blocks with their names in the shared tier.
struct RemoteChain {
  std::vector<FileImage> images;
  std::vector<RemoteName> names;

  RemoteChain(std::mt19937_64& rng, size_t count, uint32_t dim = 8)
      : images(sample_chain(rng, count, dim)) {
    for (size_t i = 0; i < count; ++i) {
      const Id& tag = images[remote_tag_depth(i)].header.name.id;
      names.push_back({remote_space("tenant"), images[i].header.name, tag});
    }
  }
};

}  // namespace kv::testing
