// `cachesvc` with limits that no setting changes, so that a test need not wait for an hour or send
// 256 MiB:
//
//   daemon_with_limits progress_timeout=50 max_put=1048576 serve --dir ...
//
// Values are milliseconds, bytes or counts. Everything else is the program's own.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "cachesvc/daemon/program.h"

namespace kv {
namespace {

using Limit = std::function<void(Config&, int64_t)>;

template <typename Field>
Limit count(Field field) {
  return [field](Config& c, int64_t v) {
    field(c) = static_cast<std::remove_reference_t<decltype(field(c))>>(v);
  };
}
template <typename Field>
Limit duration(Field field) {
  return [field](Config& c, int64_t v) { field(c) = Milliseconds(v); };
}

#define FIELD(path) \
  [](Config & c) -> auto& { return c.path; }

const std::map<std::string, Limit>& limits() {
  static const std::map<std::string, Limit> all{
      {"max_in_flight", count(FIELD(server.max_in_flight))},
      {"max_put", count(FIELD(server.max_put_bytes))},
      {"max_unsent", count(FIELD(server.max_unsent_bytes))},
      {"handshake_timeout", duration(FIELD(server.handshake_timeout))},
      {"progress_timeout", duration(FIELD(server.progress_timeout))},
      {"idle_timeout", duration(FIELD(server.idle_timeout))},
      {"http_idle_timeout", duration(FIELD(server.http_idle_timeout))},
      {"lease_timeout", duration(FIELD(server.lease_timeout))},
      {"room_wait", duration(FIELD(cache.room_wait))},
      {"durable_group_delay", duration(FIELD(cache.durable_group_delay))},
      {"adopt_at_start", count(FIELD(cache.adopt_at_start))},
      {"reconcile_rate", count(FIELD(cache.reconcile_rate))},
  };
  return all;
}

int run(int argc, char** argv) {
  std::vector<std::function<void(Config&)>> changes;
  int at = 1;
  for (; at < argc; ++at) {
    const std::string given = argv[at];
    const size_t equals = given.find('=');
    if (equals == given.npos) break;
    auto limit = limits().find(given.substr(0, equals));
    if (limit == limits().end()) {
      std::fprintf(stderr, "daemon_with_limits: no limit %s\n", argv[at]);
      return EXIT_FAILURE;
    }
    changes.push_back([set = limit->second, value = std::atoll(argv[at] + equals + 1)](Config& c) {
      set(c, value);
    });
  }
  argv[at - 1] = argv[0];
  return run_program(argc - at + 1, argv + at - 1, [&](Config& config) {
    for (const auto& change : changes) change(config);
  });
}

}  // namespace
}  // namespace kv

int main(int argc, char** argv) { return kv::run(argc, argv); }
