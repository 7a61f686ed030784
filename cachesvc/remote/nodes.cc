// Nodes that come, fail and go. See nodes.h.
#include "cachesvc/remote/nodes.h"

#include <algorithm>
#include <utility>

namespace kv {
namespace {

void close_links(const RedisNode& of, const Status& why) {
  for (const auto& link : {of.question, of.value}) {
    if (link) link->close(why);
  }
}

}  // namespace

RedisNodeRef RedisNodes::at(const NodeAddress& address) {
  RedisNodeRef& there = nodes_[address];
  if (!there) {
    there = std::make_shared<RedisNode>();
    there->address = address;
  }
  return there;
}

RedisNodeRef RedisNodes::find(const NodeAddress& address) const {
  const auto there = nodes_.find(address);
  return there == nodes_.end() ? nullptr : there->second;
}

RemoteLink& RedisNodes::link(RedisNode& to, RedisWay way) {
  auto& link = way == RedisWay::question ? to.question : to.value;
  if (!link || link->closed()) {
    link = std::make_shared<RemoteLink>(loop_, to.address, options_);
    link->start();
  }
  return *link;
}

void RedisNodes::failed(RedisNode& of, const std::string& why) {
  if (of.breaker.state() != BreakerState::open) ++failures_;
  of.breaker.failed(Clock::now());
  of.last_error = why;
}

std::vector<NodeAddress> RedisNodes::up() const {
  std::vector<NodeAddress> out;
  for (const auto& [address, node] : nodes_) {
    if (node->breaker.state() == BreakerState::closed) out.push_back(address);
  }
  return out;
}

void RedisNodes::keep_only(std::vector<NodeAddress> named, const Status& why) {
  std::sort(named.begin(), named.end());
  std::vector<RedisNodeRef> gone;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const bool stays = std::binary_search(named.begin(), named.end(), it->first);
    if (!stays) gone.push_back(it->second);
    it = stays ? std::next(it) : nodes_.erase(it);
  }
  for (const RedisNodeRef& node : gone) close_links(*node, why);
}

void RedisNodes::close(const Status& why) {
  for (const auto& [address, node] : std::exchange(nodes_, {})) close_links(*node, why);
}

}  // namespace kv
