// The RESP port of a real daemon, and a client of it that sends whatever it is told to.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>

#include "cachesvc/daemon/resp_holds.h"
#include "proto/keyed.h"
#include "tests/support/cachesvc_server.h"
#include "tests/support/proto_resp.h"

namespace kv {

/// A port of this machine that nobody listens on now.
inline uint16_t free_port() {
  int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(fd);
  return ntohs(address.sin_port);
}

/// A TCP connection.
class RespPeer {
 public:
  explicit RespPeer(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  }
  ~RespPeer() { close(); }
  RespPeer(const RespPeer&) = delete;  // owns the descriptor
  RespPeer& operator=(const RespPeer&) = delete;
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  bool connected() const { return connected_; }
  /// False once the daemon has closed.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  /// So many bytes; fewer if the daemon closes.
  std::string receive(size_t bytes) {
    std::string out(bytes, '\0');
    size_t got = 0;
    while (got < bytes) {
      ssize_t n = ::recv(fd_, out.data() + got, bytes - got, 0);
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    out.resize(got);
    return out;
  }
  std::string line() {
    std::string out;
    while (!out.ends_with("\r\n")) {
      std::string byte = receive(1);
      if (byte.empty()) break;
      out += byte;
    }
    return out;
  }
  /// A whole reply: a line, with the bytes of a bulk.
  std::string reply() {
    std::string head = line();
    if (head.starts_with("$") && head != "$-1\r\n") head += receive(std::stoul(head.substr(1)) + 2);
    return head;
  }
  std::string call(const std::vector<std::string>& words) {
    send(testing::resp_command(words));
    return reply();
  }
  bool closed() { return receive(1).empty(); }
  int descriptor() const { return fd_; }

 private:
  int fd_;
  bool connected_ = false;
};

inline std::string bulk(const std::string& bytes) {
  return "$" + std::to_string(bytes.size()) + "\r\n" + bytes + "\r\n";
}

class RespTest : public ServerTest {
 protected:
  static constexpr const char* kOk = "+OK\r\n";
  static constexpr const char* kMiss = "$-1\r\n";
  static constexpr const char* kPassword = "a password of tests";

  void start_resp(std::vector<std::string> more = {}, std::vector<std::string> limits = {}) {
    port_ = free_port();
    more.insert(more.end(), {"--resp", "127.0.0.1:" + std::to_string(port_)});
    start(std::move(more), std::move(limits));
  }
  /// Settings of a port with kPassword.
  std::vector<std::string> with_password() {
    const std::string path = dir_.store() + ".password";
    std::ofstream(path) << kPassword << "\n";
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
    return {"--set", "server.resp.password_file=" + path};
  }
  std::string random_value(size_t bytes) {
    std::string out(bytes, '\0');
    for (char& c : out) c = static_cast<char>(rng_());
    return out;
  }
  /// A stat of the port's namespace, by the Unix socket.
  uint64_t stat_of_port(const std::string& name) {
    auto client = connect("resp");
    return stat_of(*client, name);
  }

  uint16_t port_ = 0;
};

}  // namespace kv
