// The place of a Unix socket: a directory that nobody else may write, and no other listener.
#pragma once

#include <string>

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

}  // namespace kv
