// Config: every setting of the service, where it came from, and how it is read.
//
// Flags win over the environment (CACHESVC_*), the environment over the TOML file, the file over
// the defaults. With nothing given the defaults serve: the socket in the user's runtime directory,
// the store in the user's cache directory. An unknown key or a value that can't be honoured is an
// error that names its place (file:line, variable or flag). Read once at start; plain values
// afterwards.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/cache_options.h"
#include "cachesvc/daemon/config_values.h"
#include "proto/frame.h"

namespace kv {

struct ServerOptions {
  std::string socket;  ///< path; its directory is created 0700 (allow_uids: 0711)
  uint32_t max_connections = 128;
  uint32_t max_in_flight = 16;            ///< requests per connection without their last reply byte
  uint64_t max_put_bytes = 256ull << 20;  ///< body of one put frame
  uint64_t max_unsent_bytes = 64ull
                              << 20;  ///< queued replies over this: no request is read meanwhile
  Milliseconds handshake_timeout{5'000};  ///< accept to hello
  Milliseconds progress_timeout{
      30'000};  ///< a frame half read, or a reply half written, without a byte
  Milliseconds idle_timeout{3'600'000};   ///< nothing asked, nothing owed; 0: never
  Milliseconds request_timeout{600'000};  ///< the longest that a request may wait
  Milliseconds drain_timeout{20'000};     ///< SIGTERM to exit
  std::vector<uint32_t> allow_uids;       ///< beside its own user and root; any: the socket is 0666
};

struct LogOptions {
  std::string level = "info";   ///< trace, debug, info, warn, error, critical, off
  std::string format = "auto";  ///< text, json; auto: text on a terminal, else json
};

struct Config {
  ServerOptions server;
  CacheOptions cache;
  LogOptions log;
  Amount ram_budget{0, 0.5};  ///< resolved into `cache` at the end of load_config
  Amount ssd_limit{32ull << 30, 0};
  Amount ssd_min_free{1ull << 30, 0};
  std::string key_file;                       ///< or "ephemeral"; read into `cache` at the end
  std::string profile_files;                  ///< separated by commas; read into `cache` at the end
  std::string file;                           ///< that was read; empty: none
  std::map<std::string, std::string> source;  ///< key -> "default", "file:line", variable or flag
};

/// One setting as given somewhere.
struct Setting {
  std::string key;    ///< "tier.ram.budget"
  std::string value;  ///< as text
  std::string where;  ///< for messages: "--ram"
};

struct ConfigSources {
  std::optional<std::string> file;  ///< must exist; without one, the default place, which need not
  bool read_default_file = true;
  std::function<std::optional<std::string>(const std::string&)> env;  ///< null: the process's own
  std::function<std::vector<std::string>()> env_names;                ///< of all; null: the same
  std::vector<Setting> flags;
};

/// Returns: invalid_argument, naming place, key, value and what was expected.
Result<Config> load_config(const ConfigSources& sources);

/// Every key, in order of the printed configuration.
struct KeyHelp {
  std::string key, flag, help;  ///< flag may be empty
};
std::vector<KeyHelp> config_keys();
/// One line per key: key = value  # where from.
std::string print_config(const Config& config);
/// CACHESVC_TIER_RAM_BUDGET for tier.ram.budget.
std::string env_name(const std::string& key);

}  // namespace kv
