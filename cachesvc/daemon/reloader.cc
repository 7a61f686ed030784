// What changes while the service runs, and what does not.
#include "cachesvc/daemon/reloader.h"

#include <algorithm>
#include <sstream>

#include "cachesvc/daemon/config_keys.h"
#include "cachesvc/daemon/log.h"

namespace kv {
namespace {

constexpr const char* kLive[] = {"log.level", "server.drain_timeout", "server.allow_uids",
                                 "tier.ssd.write_rate", "tier.ssd.write_per_day"};

bool is_live(const std::string& name) {
  return std::any_of(std::begin(kLive), std::end(kLive), [&](const char* l) { return name == l; });
}

// The tables' names and quotas, which owners of the core were made with.
bool same_tables(const Config& a, const Config& b) {
  return std::equal(a.server.namespaces.begin(), a.server.namespaces.end(),
                    b.server.namespaces.begin(), b.server.namespaces.end(),
                    [](const NamespaceRule& x, const NamespaceRule& y) {
                      return x.name == y.name && x.quota == y.quota;
                    });
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out;
}

}  // namespace

std::vector<std::string> need_restart(const Config& now, const Config& read) {
  std::vector<std::string> names;
  for (const Key& key : config_keys()) {
    if (!is_live(key.name) && key.get(now) != key.get(read)) names.push_back(key.name);
  }
  if (!same_tables(now, read)) names.emplace_back("namespace");
  return names;
}

Milliseconds Reloader::reload() {
  supervisor_.reloading();
  auto read = read_();
  if (read.ok()) {
    take_over(*read);
  } else {
    std::stringstream lines(read.status().message());
    for (std::string line; std::getline(lines, line);) {
      log_line(spdlog::level::err, {"reload_refused", {}}, "reload: " + line);
    }
    log_line(spdlog::level::err, {"reload_refused", {}}, "reload: nothing was changed");
  }
  supervisor_.ready();
  return now_.server.drain_timeout;
}

void Reloader::take_over(const Config& read) {
  std::vector<std::string> changed;
  for (const Key& key : config_keys()) {
    if (!is_live(key.name) || key.get(now_) == key.get(read)) continue;
    changed.push_back(key.name + " = " + key.get(read));
  }
  std::vector<std::string> later = need_restart(now_, read);
  set_log_level(read.log.level);
  core_.limit_writes(read.cache.write_bytes_per_second, read.cache.write_bytes_per_day);
  if (Status s = server_.admit_by(read.server); !s.ok()) later.push_back(s.message());
  now_.log.level = read.log.level;
  now_.server.drain_timeout = read.server.drain_timeout;
  now_.cache.write_bytes_per_second = read.cache.write_bytes_per_second;
  now_.cache.write_bytes_per_day = read.cache.write_bytes_per_day;
  now_.server.allow_uids = read.server.allow_uids;
  log_line(spdlog::level::info, {"reloaded", {{"changed", changed.size()}}},
           "reload: users and tokens read anew" +
               (changed.empty() ? std::string() : ", " + joined(changed)));
  if (later.empty()) return;
  log_line(spdlog::level::warn, {"reload_needs_restart", {{"count", later.size()}}},
           "reload: takes effect at the next start only: " + joined(later));
}

}  // namespace kv
