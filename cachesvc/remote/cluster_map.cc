// The map of slots: asked for when it is first needed and whenever it may have changed.
#include <algorithm>
#include <utility>

#include "cachesvc/remote/cluster.h"

namespace kv {
namespace {

constexpr auto kRefreshPause = std::chrono::milliseconds(250);

}  // namespace

void RedisCluster::refresh_soon() {
  if (closed_ || refreshing_ || refresh_.armed()) return;
  refresh_.arm_at(std::max(Clock::now(), refreshed_ + kRefreshPause));
}

// Asks one node after the other until one answers: those that are up in turn, then the seeds.
void RedisCluster::refresh() {
  if (closed_ || refreshing_) return;
  if (!mapped_ && Clock::now() < refreshed_ + kRefreshPause && refreshed_ != Clock::time_point()) {
    return refresh_soon();  // nobody answered just now
  }
  refreshing_ = true;
  refreshed_ = Clock::now();
  std::vector<NodeAddress> candidates;
  for (const auto& [address, node] : nodes_) {
    if (node->breaker.state() == BreakerState::closed) candidates.push_back(address);
  }
  if (!candidates.empty()) {
    std::rotate(candidates.begin(), candidates.begin() + turn_++ % candidates.size(),
                candidates.end());
  }
  for (const NodeAddress& seed : options_.seeds) {
    if (std::count(candidates.begin(), candidates.end(), seed) == 0) candidates.push_back(seed);
  }
  std::reverse(candidates.begin(), candidates.end());  // asked from its end
  ask_for_map(std::move(candidates));
}

void RedisCluster::ask_for_map(std::vector<NodeAddress> candidates) {
  static const Bytes question = remote_words({"CLUSTER", "SLOTS"});
  while (!candidates.empty() && !closed_) {
    NodeRef to = node(candidates.back());
    candidates.pop_back();
    if (!to->breaker.allow(Clock::now())) continue;
    RemoteLink& link = link_of(*to, RedisRequest::Way::question);
    if (!link.has_room()) {
      if (to->breaker.state() == BreakerState::probing) count_failure(*to, "no room");
      continue;
    }
    auto done = [this, to, candidates = std::move(candidates)](Result<RespReply> reply) mutable {
      if (closed_) return;
      if (!reply.ok()) {
        count_failure(*to, reply.status().message());
        return ask_for_map(std::move(candidates));
      }
      to->breaker.answered();
      const bool alone = reply->type == RespType::error &&
                         reply->text.find("cluster support disabled") != std::string::npos;
      auto map =
          alone ? Result(SlotMap::single(to->address)) : SlotMap::decode(*reply, to->address);
      if (!map.ok() || map->shards().empty()) {
        to->last_error = reply->type == RespType::error ? reply->text : "it serves no slot";
        return ask_for_map(std::move(candidates));
      }
      single_ = alone;
      take_map(std::move(*map));
    };
    return link.send({{question}, {}, nullptr, std::move(done)});
  }
  refreshing_ = false;
  if (closed_) return;
  // The reason of the first seed stands for all.
  const auto seed = options_.seeds.empty() ? nodes_.end() : nodes_.find(options_.seeds[0]);
  const std::string why = seed == nodes_.end() ? "" : ": " + seed->second->last_error;
  if (!mapped_) wake({StatusCode::unavailable, "no node says where slots are" + why});
}

void RedisCluster::take_map(SlotMap map) {
  refreshing_ = false;
  ++counts_.maps;
  map_ = std::move(map);
  mapped_ = true;
  std::vector<NodeAddress> named = options_.seeds;
  for (const Shard& shard : map_.shards()) {
    named.push_back(shard.master);
    named.insert(named.end(), shard.replicas.begin(), shard.replicas.end());
  }
  std::sort(named.begin(), named.end());
  std::vector<NodeRef> gone;
  for (auto it = nodes_.begin(); it != nodes_.end();) {
    const bool stays = std::binary_search(named.begin(), named.end(), it->first);
    if (!stays) gone.push_back(it->second);
    it = stays ? std::next(it) : nodes_.erase(it);
  }
  for (const NodeRef& node : gone) {
    for (auto& link : {node->question, node->value}) {
      if (link) link->close({StatusCode::unavailable, "the node left the cluster"});
    }
  }
  wake({});
}

// Calls that waited for the first map go on, or end with `why`.
void RedisCluster::wake(const Status& why) {
  for (const CallRef& call : std::exchange(waiting_, {})) {
    why.ok() ? attempt(call) : end(call, why);
  }
}

}  // namespace kv
