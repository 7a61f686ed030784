// Contradictions between settings.
#include "cachesvc/daemon/config_check.h"

#include <string>

#include "cachesvc/daemon/config_keys.h"
#include "cachesvc/daemon/remote.h"
#include "proto/limits.h"
#include "storage/ssd_tier.h"

namespace kv {
namespace {

// A setting with its place, for messages.
struct Words {
  const Config& config;
  std::string said(const char* name) const {
    return std::string(name) + " = \"" + find_key(name)->get(config) + "\"";
  }
  std::string given(const char* name) const {
    return said(name) + " (" + config.source.at(name) + ")";
  }
  Status wrong(const char* name, const std::string& why) const {
    return invalid_argument(config.source.at(name) + ": " + said(name) + ": " + why);
  }
};

// Refuses token files that nobody can use: a token admits no user who may not connect.
Status check_tokens(const Config& config) {
  const ServerOptions& server = config.server;
  bool others = !server.allow_uids.empty();
  for (const NamespaceRule& rule : server.namespaces) others |= !rule.users.empty();
  for (const NamespaceRule& rule : server.namespaces) {
    if (others || rule.token_file.empty()) continue;
    return invalid_argument(config.file + ": namespace \"" + rule.name +
                            "\": token_file: nobody who needs the token may connect: name users "
                            "in server.allow_uids");
  }
  return {};
}

// The RESP port's settings say something only where there is one, and who is not on this machine
// needs the password.
Status check_resp(const Config& config, const Words& words) {
  const RespOptions& resp = config.server.resp;
  if (resp.ns.empty() || resp.ns.size() > kMaxNamespaceBytes) {
    return words.wrong("server.resp.namespace",
                       "expected a text of 1 to " + std::to_string(kMaxNamespaceBytes) + " bytes");
  }
  if (resp.listen.port != 0) {
    if (resp.listen.is_loopback() || !resp.password.empty()) return {};
    return words.wrong(
        "server.resp.listen",
        "other machines may connect: set server.resp.password_file too, or listen on "
        "127.0.0.1");
  }
  for (const char* name : {"server.resp.password_file", "server.resp.namespace"}) {
    if (config.source.at(name) == "default" ||
        find_key(name)->get(config) == find_key(name)->get(Config{})) {
      continue;
    }
    return words.wrong(name, "there is no RESP port: set server.resp.listen too");
  }
  return {};
}

// Every user of the machine may connect to a TCP address.
Status check_http(const Config& config, const Words& words) {
  const HttpOptions& http = config.server.http;
  if (http.address.port != 0 && http.token.empty()) {
    return words.wrong("server.http.listen",
                       "every user of this machine may connect: set server.http.token_file too, or "
                       "listen on a Unix socket");
  }
  if (http.on() && http.socket == config.server.socket) {
    return words.wrong("server.http.listen", "the same as " + words.given("server.socket"));
  }
  if (http.on() || http.token_file.empty()) return {};
  return words.wrong("server.http.token_file", "there is no HTTP port: set server.http.listen too");
}

// The shared tier takes what the SSD has, and its settings say something only where it is.
void check_remote(const Config& config, const Words& words, Mistakes& mistakes) {
  const RemoteSettings& remote = config.remote;
  auto nodes = remote_nodes(remote.nodes);
  if (!nodes.ok()) return mistakes.add(words.wrong("remote.nodes", nodes.status().message()));
  if (!remote.nodes.empty() && config.cache.ssd_dir.empty()) {
    mistakes.add(words.wrong("remote.nodes", "there is no SSD tier, from which it is written: " +
                                                 words.given("tier.ssd.limit")));
  }
  if (remote.cert_file.empty() != remote.cert_key_file.empty()) {
    const bool cert = !remote.cert_file.empty();
    mistakes.add(words.wrong(cert ? "remote.cert_file" : "remote.cert_key_file",
                             cert ? "set remote.cert_key_file too" : "set remote.cert_file too"));
  }
  if (!remote.cert_file.empty() && remote.ca_file.empty()) {
    mistakes.add(words.wrong("remote.cert_file", "there is no TLS: set remote.ca_file too"));
  }
  if (!remote.user.empty() && remote.password_file.empty()) {
    mistakes.add(words.wrong("remote.user", "set remote.password_file too"));
  }
  if (!remote.nodes.empty()) return;
  for (const char* name : {"remote.user", "remote.password_file", "remote.ca_file",
                           "remote.cert_file", "remote.cert_key_file", "remote.key_file"}) {
    if (find_key(name)->get(config).empty()) continue;
    mistakes.add(words.wrong(name, "there is no shared tier: set remote.nodes too"));
  }
}

void check_tiers(const Config& config, const Words& words, Mistakes& mistakes) {
  const CacheOptions& cache = config.cache;
  const bool ssd = !cache.ssd_dir.empty();
  if (ssd && cache.ssd_limit_bytes < kMinLimitBytes) {
    mistakes.add(words.wrong("tier.ssd.limit", "that is " + std::to_string(cache.ssd_limit_bytes) +
                                                   " bytes, expected at least " +
                                                   format_size(kMinLimitBytes)));
  }
  auto set = [&](const char* name) { return config.source.at(name) != "default"; };
  const uint64_t ram = cache.ram_budget_bytes;  // 0: a share
  if (ram > 0 && set("tier.ram.warm_start") && cache.warm_start_bytes > ram) {
    mistakes.add(
        words.wrong("tier.ram.warm_start", "more than all of " + words.given("tier.ram.budget")));
  }
  for (const char* name : {"tier.ssd.key_file", "tier.ssd.write_rate", "tier.ssd.write_per_day"}) {
    if (ssd || !set(name) || find_key(name)->get(config) == find_key(name)->get(Config{})) continue;
    mistakes.add(words.wrong(name, "there is no SSD tier: " + words.given("tier.ssd.limit")));
  }
}

}  // namespace

void check_together(const Config& config, Mistakes& mistakes) {
  const Words words{config};
  if (config.server.socket.empty()) mistakes.add(words.wrong("server.socket", "expected a path"));
  mistakes.add(check_tokens(config));
  mistakes.add(check_resp(config, words));
  mistakes.add(check_http(config, words));
  check_tiers(config, words, mistakes);
  check_remote(config, words, mistakes);
}

}  // namespace kv
