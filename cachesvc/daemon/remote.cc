// From settings to nodes.
#include "cachesvc/daemon/remote.h"

#include <algorithm>
#include <sstream>

namespace kv {
namespace {

constexpr uint64_t kMostBytes = 64ull << 20;
constexpr uint64_t kShare = 8;  // of the budget

}  // namespace

uint64_t remote_bytes(uint64_t budget_bytes) { return std::min(kMostBytes, budget_bytes / kShare); }

Result<std::vector<NodeAddress>> remote_nodes(const std::string& list) {
  std::vector<NodeAddress> nodes;
  std::stringstream texts(list);
  for (std::string text; std::getline(texts, text, ',');) {
    auto node = parse_node(text);
    if (!node) return invalid_argument("\"" + text + "\": expected host:port");
    nodes.push_back(std::move(*node));
  }
  return nodes;
}

Result<std::shared_ptr<SharedTier>> connect_remote(const RemoteSettings& settings, uint64_t bytes) {
  if (settings.nodes.empty()) return std::shared_ptr<SharedTier>();
  RedisOptions nodes;
  KV_ASSIGN_OR_RETURN(nodes.seeds, remote_nodes(settings.nodes));
  nodes.link.user = settings.user;
  nodes.link.password = settings.password;
  if (!settings.ca_file.empty()) {
    KV_ASSIGN_OR_RETURN(nodes.link.tls,
                        remote_tls(settings.ca_file, settings.cert_file, settings.cert_key_file));
  }
  RemoteTierOptions options;
  options.key = settings.key;
  options.ttl = std::chrono::duration_cast<std::chrono::seconds>(settings.expiry);
  options.max_bytes_in_flight = bytes;
  return std::shared_ptr<SharedTier>(
      std::make_shared<RedisTier>(std::move(nodes), std::move(options)));
}

}  // namespace kv
