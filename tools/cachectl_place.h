// Place: where cachectl looks: a store's directory or a daemon's socket, given or found as
// `cachesvc serve` finds its own. One grammar for all verbs. One thread.
#pragma once

#include <CLI/CLI.hpp>

#include "proto/socket_client.h"
#include "tools/cachectl.h"

namespace kv::cachectl {

/// A place as it was found: a socket at which a daemon is to answer, or a directory, or both.
struct Place {
  std::string socket;
  std::string directory;
  std::string key_file;  ///< of the directory; empty: none
  std::string found;     ///< what was found, in words; empty: somebody named it
};

/// PLACE, --socket, --dir, --key-file and --json of a verb; `json`: what that prints; empty: the
/// verb has none.
void add_place(CLI::App& verb, Given& given, const std::string& json);
/// `given` with PLACE taken as the operand, where there is one word and that names no directory
/// and no socket, or (`always`) whatever it names.
void take_operand(Given& given, std::string& operand, bool always);

/// Without anything given: the daemon where `serve` would listen here, or that of the package, if
/// one answers; else the directory that it would use. Returns: not_found (nothing has the name);
/// what load_config returns.
Result<Place> find_place(const Given& given);
/// The directory of the place; a daemon's by what it holds open, as far as this user may see that.
/// Returns: not_found, with the way to name it.
Result<std::string> directory_of(const Place& place);
/// The place in words, on standard error, where nobody named it.
void say_place(const Place& place);

/// `request` with the directory of the place, its key and the way to print; standard error names a
/// directory that was found. Returns: what find_place, directory_of and read_key_file return.
Result<Request> directory_request(const Given& given, Request request);
using Run = Exit (*)(const Request&);
Exit on_directory(const Given& given, Request request, Run verb);

/// A client of the place's daemon, as namespace `ns` (empty: one for programs that look). Returns:
/// what connecting returns, naming the socket and what to do; not_found: it is a directory.
Result<std::unique_ptr<SocketClient>> daemon_of(const Place& place, const std::string& ns = {});
/// Patience with a daemon.
inline constexpr std::chrono::seconds kPatience{10};

}  // namespace kv::cachectl
