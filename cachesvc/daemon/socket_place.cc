// Directories, stale sockets, and listening.
#include "cachesvc/daemon/socket_place.h"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "cachesvc/daemon/log.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxPathBytes = 107;  // sockaddr_un's

Status place_error(const std::string& what) {
  return {StatusCode::io_error, what + ": " + std::strerror(errno)};
}

// The socket's directory: made 0700 with its parents (0711 if `others` shall reach the socket), or
// one that only we (or root) can write.
Status prepare_directory(const std::string& setting, const fs::path& directory, bool others) {
  for (fs::path part; const auto& name : fs::absolute(directory)) {
    part /= name;
    bool made = ::mkdir(part.c_str(), 0700) == 0;
    if (!made && errno != EEXIST && errno != EROFS && errno != EACCES) {
      return place_error(setting + ": mkdir " + part.string());
    }
    if (made && others && ::chmod(part.c_str(), 0711) != 0) {
      return place_error(setting + ": chmod " + part.string());
    }
    // The directory isn't ours to open: a group or an access list may let the right users through,
    // too.
    struct stat st;
    if (others && ::stat(part.c_str(), &st) == 0 && (st.st_mode & 0001) == 0) {
      char mode[8];
      std::snprintf(mode, sizeof(mode), "%o", st.st_mode & 07777);
      log_line(
          spdlog::level::warn, {"closed_directory", {}},
          "server.allow_uids: " + part.string() + " is closed to other users (mode " + mode +
              "): " + "they cannot connect unless a group or an access list lets them through");
    }
  }
  struct stat st;
  if (::stat(directory.c_str(), &st) != 0) {
    return place_error(setting + ": directory " + directory.string());
  }
  bool ours = st.st_uid == ::geteuid() || st.st_uid == 0;
  if (!S_ISDIR(st.st_mode) || !ours || (st.st_mode & 0022) != 0) {
    return invalid_argument(setting + ": " + directory.string() +
                            " must be a directory of this user that nobody else can write");
  }
  return {};
}

}  // namespace

Status prepare_socket_directory(const std::string& setting, const std::string& path, bool others) {
  if (path.size() > kMaxPathBytes) {
    return invalid_argument(setting + ": " + std::to_string(path.size()) +
                            " bytes, expected at most " + std::to_string(kMaxPathBytes));
  }
  return prepare_directory(setting, fs::absolute(path).parent_path(), others);
}

Status remove_stale_socket(const std::string& setting, const std::string& path) {
  struct stat st;
  if (::lstat(path.c_str(), &st) != 0) {
    return errno == ENOENT ? Status() : place_error(setting + ": " + path);
  }
  if (!S_ISSOCK(st.st_mode) || st.st_uid != ::geteuid()) {
    return invalid_argument(setting + ": " + path + " exists and is no socket of this user");
  }
  boost::asio::io_context io;
  boost::asio::local::stream_protocol::socket probe(io);
  boost::system::error_code ec;
  probe.connect(boost::asio::local::stream_protocol::endpoint(path), ec);
  if (!ec) return {StatusCode::busy, setting + ": another program listens on " + path};
  if (::unlink(path.c_str()) != 0) return place_error(setting + ": unlink " + path);
  return {};
}

Status prepare_socket_place(const std::string& setting, const std::string& path, bool others) {
  KV_RETURN_IF_ERROR(prepare_socket_directory(setting, path, others));
  return remove_stale_socket(setting, path);
}

Status listen_at_path(const std::string& setting, const std::string& path, bool others,
                      LocalAcceptor& acceptor) {
  using Protocol = boost::asio::local::stream_protocol;
  boost::system::error_code ec;
  acceptor.open(Protocol(), ec);
  const mode_t before = ::umask(0177);
  if (!ec) acceptor.bind(Protocol::endpoint(path), ec);
  ::umask(before);
  if (!ec && others && ::chmod(path.c_str(), 0666) != 0) {
    return place_error(setting + ": chmod " + path);
  }
  if (!ec) acceptor.listen(boost::asio::socket_base::max_listen_connections, ec);
  return ec ? Status(StatusCode::io_error, setting + ": " + path + ": " + ec.message()) : Status();
}

Status listen_at_address(const std::string& setting, const TcpAddress& address,
                         TcpAcceptor& acceptor) {
  const boost::asio::ip::tcp::endpoint endpoint(boost::asio::ip::address_v4(address.ip),
                                                address.port);
  boost::system::error_code ec;
  acceptor.open(endpoint.protocol(), ec);
  if (!ec) acceptor.set_option(boost::asio::socket_base::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(boost::asio::socket_base::max_listen_connections, ec);
  if (!ec) return {};
  return {StatusCode::io_error, setting + ": " + format_address(address) + ": " + ec.message()};
}

}  // namespace kv
