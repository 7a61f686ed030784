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
#include "cachesvc/daemon/server_options.h"

namespace kv {

struct LogOptions {
  std::string level = "info";   ///< trace, debug, info, warn, error, critical, off
  std::string format = "auto";  ///< text, json; auto: text on a terminal, else json
};

/// The shared tier as it is configured; serve() connects to it.
struct RemoteSettings {
  std::string nodes;  ///< "host:port", separated by commas; empty: there is none
  std::string user, password_file, password;
  std::string ca_file, cert_file, cert_key_file;  ///< TLS
  std::string key_file;                           ///< seals values
  std::shared_ptr<const SealKey> key;
  Milliseconds expiry{std::chrono::hours(7 * 24)};
};

struct Config {
  ServerOptions server;
  CacheOptions cache;
  LogOptions log;
  RemoteSettings remote;
  // Amounts as they were given; resolved into `cache` at the end of load_config.
  Amount ram_budget{0, kRamFraction, kMostRamBytes};
  std::string ssd_dir;
  Amount ssd_limit{32ull << 30, 0};  ///< 0: no SSD tier
  Amount ssd_min_free{1ull << 30, 0};
  std::string key_file;                       ///< or "ephemeral"
  std::string profile_files;                  ///< separated by commas
  std::string file;                           ///< the file read; empty: none
  std::map<std::string, std::string> source;  ///< key -> "default", "file:line", variable or flag
};

/// A setting as it was given.
struct Setting {
  std::string key;    ///< "tier.ram.budget"
  std::string value;  ///< the value as text
  std::string where;  ///< for messages: "--ram"
};

struct ConfigSources {
  std::optional<std::string> file;  ///< must exist; without one, the default place, which need not
  bool read_default_file = true;
  std::function<std::optional<std::string>(const std::string&)> env;  ///< null: the process's own
  std::function<std::vector<std::string>()> env_names;  ///< names of all; null: the process's own
  std::vector<Setting> flags;
};

/// Returns: invalid_argument, a line for each mistake, naming place, key, value and what was
/// expected. Contradictions between settings are looked for when each alone is right.
Result<Config> load_config(const ConfigSources& sources);

}  // namespace kv
