// The real daemon as a fixture, and a peer that sends whatever it is told to. KV_CACHESVC_BIN names
// the program.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>

#include "proto/frame.h"
#include "proto/socket_client.h"
#include "tests/support/cachesvc_testing.h"
#include "tests/support/daemon_process.h"
#include "tests/support/proto_testing.h"

namespace kv {

namespace fs = std::filesystem;

// A connection that sends whatever it is told to.
class RawPeer {
 public:
  explicit RawPeer(const std::string& path)
      : fd_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof(address.sun_path), "%s", path.c_str());
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RawPeer() { close(); }
  RawPeer(const RawPeer&) = delete;  // owns the descriptor
  RawPeer& operator=(const RawPeer&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool connected() const { return connected_; }
  // False once the daemon has closed.
  bool send(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }
  // The next frame; nullopt once the daemon has closed.
  std::optional<Frame> receive() {
    while (true) {
      if (auto frame = parser_.next()) return frame;
      auto to = parser_.prepare();
      ssize_t n = ::recv(fd_, to.data(), to.size(), 0);
      if (n <= 0 || !parser_.commit(static_cast<size_t>(n)).ok()) return std::nullopt;
    }
  }
  void say_hello(const std::string& ns, const std::string& token = "") {
    HelloRequest m;
    m.ns = ns;
    m.token = token;
    send(testing::flatten(reply_frame(FrameType::hello, 1, m)));
  }
  void hello(const std::string& ns = "raw", const std::string& token = "") {
    say_hello(ns, token);
    auto frame = receive();
    ASSERT_TRUE(frame.has_value());
    ASSERT_EQ(frame->header.type, FrameType::hello_ok);
    parser_.set_greeted(true);
  }
  StatusCode receive_error() {
    auto frame = receive();
    if (!frame || frame->header.type != FrameType::error) return StatusCode::ok;
    auto error = decode_reply<ErrorReply>(FrameType::error, frame->body.span());
    return error.ok() ? error->code : StatusCode::ok;
  }
  int descriptor() const { return fd_; }
  void shut_writes() { ::shutdown(fd_, SHUT_WR); }

 private:
  int fd_;
  bool connected_ = false;
  FrameParser parser_;
};

// A file that a daemon's log goes to.
class LogFile {
 public:
  explicit LogFile(std::string path) : path_(std::move(path)) {}
  /// What `start` starts inherits `fd`, or the file, as its standard error.
  template <typename Start>
  void hears(Start start, int fd = -1) {
    int own = ::dup(STDERR_FILENO);
    int log = ::open(path_.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
    ASSERT_GE(::dup2(fd >= 0 ? fd : log, STDERR_FILENO), 0);
    start();
    ::dup2(own, STDERR_FILENO);
    ::close(own);
    ::close(log);
  }
  std::string text() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::vector<std::string> lines() const {
    std::ifstream in(path_);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }
  size_t lines_with(const std::string& part) const {
    size_t n = 0;
    for (const auto& line : lines()) n += line.find(part) != line.npos;
    return n;
  }

 private:
  std::string path_;
};

class ServerTest : public ::testing::Test {
 protected:
  std::string socket() const { return dir_.store() + "-run/cachesvc.sock"; }
  // `limits`: what no setting changes (DaemonProcess).
  void start(std::vector<std::string> more = {}, std::vector<std::string> limits = {}) {
    std::vector<std::string> args = {"--dir",    dir_.store(),
                                     "--socket", socket(),
                                     "--ram",    "64MiB",
                                     "--ssd",    "64MiB",
                                     "--codec",  "raw",
                                     "--set",    "tier.ssd.min_free=0",
                                     "--set",    "codec.block_tokens=16"};
    args.insert(args.end(), more.begin(), more.end());
    daemon_ = DaemonProcess::start(args, std::move(limits));
    ASSERT_TRUE(daemon_) << "the daemon did not become ready";
  }
  std::unique_ptr<SocketClient> connect(const std::string& ns = "test") {
    auto client = SocketClient::connect(socket(), ns, {});
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return client.ok() ? std::move(*client) : nullptr;
  }
  // Its hits come by the socket.
  std::unique_ptr<SocketClient> connect_streaming(const std::string& ns = "test") {
    SocketClientOptions options;
    options.map_segments = false;
    auto client = SocketClient::connect(socket(), ns, options);
    EXPECT_TRUE(client.ok()) << client.status().to_string();
    return client.ok() ? std::move(*client) : nullptr;
  }
  uint64_t stat(const std::string& name) {
    auto client = connect();
    return stat_of(*client, name);
  }
  // Waits for the daemon's own accounts to say so; each look is a call that it answers.
  void wait_for(const std::string& name, uint64_t value) {
    Deadline deadline = soon();
    while (stat(name) != value) ASSERT_LT(std::chrono::steady_clock::now(), deadline) << name;
  }
  // Exit code of `cachesvc ARGS`, its stderr in `said`.
  // Exit code and output of the program; `before` are the shell's words before it.
  int run(const std::vector<std::string>& args, std::string* said = nullptr,
          const std::string& before = "") {
    std::string command = before + KV_CACHESVC_BIN, file = dir_.store() + ".said";
    for (const auto& a : args) command += " '" + a + "'";
    int status = std::system(("(" + command + ") >" + file + " 2>&1").c_str());
    if (said != nullptr) {
      std::ifstream in(file);
      said->assign(std::istreambuf_iterator<char>(in), {});
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  TempDir dir_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::mt19937 rng_{11};
};

}  // namespace kv
