// Settings that change while the service runs, and those that do not.
#include "cachesvc/daemon/reloader.h"

#include <algorithm>

#include "cachesvc/daemon/config_kinds.h"
#include "cachesvc/daemon/config_mistakes.h"
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
  return listed(names, [](const std::string& name) { return name; });
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
    for (const std::string& line : lines_of(read.status())) {
      log_line(spdlog::level::err, {"reload_refused", {}}, "reload: " + line);
    }
    log_line(spdlog::level::err, {"reload_refused", {}}, "reload: nothing was changed");
  }
  supervisor_.ready();
  return now_.server.drain_timeout;
}

void Reloader::take_over(const Config& read) {
  std::vector<std::string> later = need_restart(now_, read), changed;
  const Status admitted = server_.admit_by(read.server);
  if (!admitted.ok()) later.push_back(admitted.message());
  if (admitted.ok()) changed.emplace_back("users and tokens read anew");
  const uint64_t rate = now_.cache.write_bytes_per_second, day = now_.cache.write_bytes_per_day;
  for (const Key& key : config_keys()) {
    const std::string value = key.get(read);
    if (!is_live(key.name) || key.get(now_) == value) continue;
    if (key.name == "server.allow_uids" && !admitted.ok()) continue;
    (void)key.set(now_, value);  // it was read once
    changed.push_back(key.name + " = " + value);
  }
  set_log_level(now_.log.level);
  const CacheOptions& cache = now_.cache;
  if (cache.write_bytes_per_second != rate || cache.write_bytes_per_day != day) {
    core_.limit_writes(cache.write_bytes_per_second, cache.write_bytes_per_day);
  }
  log_line(spdlog::level::info, {"reloaded", {{"changed", changed.size()}}},
           "reload: " + (changed.empty() ? "nothing to change" : joined(changed)));
  if (later.empty()) return;
  log_line(spdlog::level::warn, {"reload_needs_restart", {{"count", later.size()}}},
           "reload: takes effect at the next start only: " + joined(later));
}

}  // namespace kv
