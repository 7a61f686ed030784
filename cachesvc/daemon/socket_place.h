// Places of sockets that listen: of a Unix socket a directory that nobody else may write, and no
// other listener; of TCP an address.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <string>

#include "cachesvc/daemon/config_values.h"
#include "proto/status.h"

namespace kv {

/// Prepares `path` for a socket: its directory is made 0700 with its parents (0711 if `others`
/// shall reach the socket) or must be one that only we or root can write. `setting` begins every
/// message. Returns: invalid_argument (path, directory), io_error.
Status prepare_socket_directory(const std::string& setting, const std::string& path, bool others);
/// Removes a socket of ours that nobody listens on. Returns: busy (somebody does),
/// invalid_argument, io_error.
Status remove_stale_socket(const std::string& setting, const std::string& path);
/// Both.
Status prepare_socket_place(const std::string& setting, const std::string& path, bool others);

using LocalAcceptor = boost::asio::local::stream_protocol::acceptor;
using TcpAcceptor = boost::asio::ip::tcp::acceptor;

/// Binds and listens at a path that is prepared; the socket is 0600 from its first moment, 0666
/// then if `others` shall reach it. Returns: io_error.
Status listen_at_path(const std::string& setting, const std::string& path, bool others,
                      LocalAcceptor& acceptor);
/// Binds and listens at an address. Returns: io_error.
Status listen_at_address(const std::string& setting, const TcpAddress& address,
                         TcpAcceptor& acceptor);

}  // namespace kv
