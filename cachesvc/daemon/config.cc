// The order in which sources win, and what settings mean on this machine.
#include "cachesvc/daemon/config.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include "cachesvc/daemon/config_check.h"
#include "cachesvc/daemon/config_keys.h"
#include "cachesvc/daemon/config_mistakes.h"
#include "cachesvc/daemon/config_names.h"
#include "cachesvc/daemon/config_namespaces.h"
#include "cachesvc/daemon/config_secret.h"
#include "cachesvc/daemon/config_toml.h"
#include "codec/profile_file.h"

namespace kv {
namespace {

Status apply(Config& config, const Setting& s) {
  const Key* key = find_key(s.key);
  if (key == nullptr) return unknown_key(s.where, s.key);
  Status status = key->set(config, s.value);
  if (!status.ok()) return invalid_argument(s.where + ": " + s.key + " = " + status.message());
  config.source[s.key] = s.where;
  return {};
}

void apply_all(Config& config, const std::vector<Setting>& settings, Mistakes& mistakes) {
  for (const Setting& s : settings) mistakes.add(apply(config, s));
}

using Variables = std::function<std::optional<std::string>(const std::string&)>;

std::optional<std::string> process_env(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<Setting> from_env(const Variables& env) {
  std::vector<Setting> settings;
  for (const Key& key : config_keys()) {
    const std::string name = env_name(key.name);
    if (auto value = env(name)) settings.push_back({key.name, *value, name});
  }
  return settings;
}

// $XDG_..., else below $HOME, else the system's place.
std::string place(const Variables& env, const char* xdg, const char* below_home,
                  const char* system) {
  if (auto dir = env(xdg); dir && dir->starts_with('/')) return *dir;
  auto home = env("HOME");
  if (::geteuid() != 0 && home && home->starts_with('/')) return *home + below_home;
  return system;
}

void set_default_paths(Config& config, const Variables& env) {
  std::string per_user = "/tmp/cachesvc-" + std::to_string(::geteuid());
  auto runtime = env("XDG_RUNTIME_DIR");
  if (runtime && runtime->starts_with('/')) {
    config.server.socket = *runtime + "/cachesvc/cachesvc.sock";
  } else {
    config.server.socket = (::geteuid() == 0 ? "/run/cachesvc" : per_user) + "/cachesvc.sock";
  }
  config.ssd_dir = place(env, "XDG_CACHE_HOME", "/.cache", "/var/cache") + "/cachesvc";
}

// The file to read; empty: none.
std::string file_of(const ConfigSources& sources, const Variables& env) {
  if (sources.file || !sources.read_default_file) return sources.file.value_or("");
  std::string usual = place(env, "XDG_CONFIG_HOME", "/.config", "/etc") + "/cachesvc/cachesvc.toml";
  std::error_code ec;
  return std::filesystem::exists(usual, ec) ? usual : "";
}

// The error of a setting that can't be used.
Status wrong(const Config& config, const char* name, const std::string& why) {
  return invalid_argument(config.source.at(name) + ": " + name + ": " + why);
}

// Bytes of the file system that `path`, or its nearest existing parent, lies on; 0: none.
uint64_t file_system_bytes(const std::string& path) {
  std::filesystem::path at = std::filesystem::absolute(path);
  struct statvfs info;
  while (::statvfs(at.c_str(), &info) != 0) {
    if (at == at.root_path()) return 0;
    at = at.parent_path();
  }
  return uint64_t{info.f_blocks} * info.f_frsize;
}

uint64_t resolve(const Amount& amount, const std::string& path) {
  if (amount.fraction <= 0) return amount.bytes;
  const auto share =
      static_cast<uint64_t>(amount.fraction * static_cast<double>(file_system_bytes(path)));
  return amount.most_bytes == 0 ? share : std::min(share, amount.most_bytes);
}

Status resolve_ssd(Config& config) {
  if (config.ssd_limit.bytes == 0 && config.ssd_limit.fraction <= 0) return {};
  if (config.ssd_dir.empty()) return wrong(config, "tier.ssd.dir", "expected a path");
  CacheOptions& cache = config.cache;
  cache.ssd_dir = config.ssd_dir;
  cache.ssd_limit_bytes = resolve(config.ssd_limit, cache.ssd_dir);
  cache.ssd_min_free_bytes = resolve(config.ssd_min_free, cache.ssd_dir);
  auto key = seal_key_of(config.key_file);
  if (!key.ok()) return wrong(config, "tier.ssd.key_file", key.status().message());
  cache.ssd_key = *key;
  return {};
}

Status read_profiles(Config& config) {
  std::stringstream list(config.profile_files);
  for (std::string path; std::getline(list, path, ',');) {
    auto file = read_profile_file(path);
    if (!file.ok()) return wrong(config, "codec.profiles", file.status().message());
    config.cache.profiles[file->fingerprint] =
        std::make_shared<const Profile>(std::move(file->profile));
  }
  return {};
}

Status read_password(Config& config) {
  RespOptions& resp = config.server.resp;
  if (resp.password_file.empty()) return {};
  auto password = read_secret("password file", resp.password_file);
  if (!password.ok())
    return wrong(config, "server.resp.password_file", password.status().message());
  resp.password = std::move(*password);
  return {};
}

Status read_http_token(Config& config) {
  HttpOptions& http = config.server.http;
  if (http.token_file.empty()) return {};
  auto token = read_secret("token file", http.token_file);
  if (!token.ok()) return wrong(config, "server.http.token_file", token.status().message());
  http.token = std::move(*token);
  return {};
}

Status read_remote(Config& config) {
  RemoteSettings& remote = config.remote;
  if (!remote.password_file.empty()) {
    auto password = read_secret("password file", remote.password_file);
    if (!password.ok()) return wrong(config, "remote.password_file", password.status().message());
    remote.password = std::move(*password);
  }
  if (remote.key_file == "ephemeral") {
    return wrong(config, "remote.key_file", "an ephemeral key is nobody else's: expected a path");
  }
  auto key = seal_key_of(remote.key_file);
  if (!key.ok()) return wrong(config, "remote.key_file", key.status().message());
  remote.key = *key;
  return {};
}

Status finish(Config& config) {
  CacheOptions& cache = config.cache;
  cache.ram_budget_bytes = config.ram_budget.bytes;
  if (config.ram_budget.fraction > 0) cache.ram_fraction = config.ram_budget.fraction;
  cache.ram_most_bytes = config.ram_budget.most_bytes;
  Mistakes mistakes;
  mistakes.add(resolve_ssd(config));
  mistakes.add(read_profiles(config));
  mistakes.add(read_password(config));
  mistakes.add(read_http_token(config));
  mistakes.add(read_remote(config));
  cache.max_sessions = config.server.max_connections;
  for (const NamespaceRule& rule : config.server.namespaces) cache.quotas[rule.name] = rule.quota;
  cache.drain_timeout = config.server.drain_timeout;
  check_together(config, mistakes);
  KV_RETURN_IF_ERROR(mistakes.all());
  return validate(cache);
}

}  // namespace

Result<Config> load_config(const ConfigSources& sources) {
  Config config;
  const Variables env = sources.env ? sources.env : process_env;
  set_default_paths(config, env);
  for (const Key& key : config_keys()) config.source[key.name] = "default";
  config.file = file_of(sources, env);
  Mistakes mistakes;
  if (!config.file.empty()) {
    KV_ASSIGN_OR_RETURN(auto settings, read_toml(config.file, mistakes));
    apply_all(config, settings, mistakes);
    config.server.namespaces = read_namespaces(config.file, mistakes);
  }
  check_env_names(sources.env_names ? sources.env_names() : process_env_names(), mistakes);
  apply_all(config, from_env(env), mistakes);
  apply_all(config, sources.flags, mistakes);
  KV_RETURN_IF_ERROR(mistakes.all());  // what follows from a wrong value says nothing
  KV_RETURN_IF_ERROR(finish(config));
  return config;
}

}  // namespace kv
