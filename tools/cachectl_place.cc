// Places found by serve's own rules.
#include "tools/cachectl_place.h"

#include "cachesvc/daemon/config.h"

namespace kv::cachectl {

Result<Place> default_place() {
  KV_ASSIGN_OR_RETURN(const Config config, load_config({}));
  return Place{config.server.socket, config.ssd_dir};
}

Result<std::unique_ptr<SocketClient>> daemon_at(const std::string& socket, const std::string& ns) {
  std::string path = socket;
  if (path.empty()) {
    KV_ASSIGN_OR_RETURN(const Place place, default_place());
    path = place.socket;
  }
  SocketClientOptions options;
  options.program = "cachectl";
  auto client = SocketClient::connect(path, ns, options);
  if (client.ok()) return client;
  return Status(client.status().code(), client.status().message() + "\nno daemon answers at " +
                                            path + "; --socket names another one");
}

}  // namespace kv::cachectl
