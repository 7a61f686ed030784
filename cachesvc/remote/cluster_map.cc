// Rounds of questions for the map. See cluster_map.h.
#include "cachesvc/remote/cluster_map.h"

#include <algorithm>
#include <utility>

namespace kv {
namespace {

constexpr auto kRefreshPause = std::chrono::milliseconds(250);
constexpr auto kMapAge = std::chrono::minutes(1);

}  // namespace

ClusterMap::ClusterMap(boost::asio::io_context& loop, RedisNodes& nodes,
                       const std::vector<NodeAddress>& seeds,
                       std::function<void(const Status&)> told)
    : nodes_(nodes),
      seeds_(seeds),
      told_(std::move(told)),
      timer_(loop.get_executor(), [this] { ask(); }) {}

void ClusterMap::close() {
  closed_ = true;
  timer_.cancel();
}

std::vector<NodeAddress> ClusterMap::masters() const {
  std::vector<NodeAddress> out;
  for (const Shard& shard : map_.shards()) out.push_back(shard.master);
  return out;
}

void ClusterMap::moved(uint16_t slot, const NodeAddress& master) {
  map_.moved(slot, master);
  ask_soon();
}

void ClusterMap::ask_soon() {
  if (closed_ || asking_ || timer_.armed()) return;
  timer_.arm_at(std::max(Clock::now(), asked_ + kRefreshPause));
}

void ClusterMap::ask_if_old() {
  if (Clock::now() > asked_ + kMapAge) ask_soon();
}

// Asks one node after the other until one answers: those that are up in turn, then the seeds.
void ClusterMap::ask() {
  if (closed_ || asking_) return;
  if (!known_ && Clock::now() < asked_ + kRefreshPause && asked_ != Clock::time_point()) {
    return ask_soon();  // nobody answered just now
  }
  asking_ = true;
  asked_ = Clock::now();
  std::vector<NodeAddress> candidates = nodes_.up();
  if (!candidates.empty()) {
    std::rotate(candidates.begin(), candidates.begin() + turn_++ % candidates.size(),
                candidates.end());
  }
  for (const NodeAddress& seed : seeds_) {
    if (std::count(candidates.begin(), candidates.end(), seed) == 0) candidates.push_back(seed);
  }
  std::reverse(candidates.begin(), candidates.end());  // asked from its end
  ask_one_of(std::move(candidates));
}

void ClusterMap::ask_one_of(std::vector<NodeAddress> candidates) {
  static const Bytes question = remote_words({"CLUSTER", "SLOTS"});
  while (!candidates.empty() && !closed_) {
    RedisNodeRef to = nodes_.at(candidates.back());
    candidates.pop_back();
    if (!to->breaker.allow(Clock::now())) continue;
    RemoteLink& link = nodes_.link(*to, RedisWay::question);
    if (!link.has_room()) {
      if (to->breaker.state() == BreakerState::probing) nodes_.failed(*to, "no room");
      continue;
    }
    auto done = [this, to, candidates = std::move(candidates)](Result<RespReply> reply) mutable {
      if (closed_) return;
      if (!reply.ok()) {
        nodes_.failed(*to, reply.status().message());
        return ask_one_of(std::move(candidates));
      }
      to->breaker.answered();
      if (take(to->address, *reply)) return told_({});
      to->last_error = reply->type == RespType::error ? reply->text : "it serves no slot";
      ask_one_of(std::move(candidates));
    };
    return link.send({{question}, {}, nullptr, std::move(done)});
  }
  in_vain();
}

// False if the answer is no map.
bool ClusterMap::take(const NodeAddress& from, const RespReply& reply) {
  const bool alone = reply.type == RespType::error &&
                     reply.text.find("cluster support disabled") != std::string::npos;
  auto map = alone ? Result(SlotMap::single(from)) : SlotMap::decode(reply, from);
  if (!map.ok() || map->shards().empty()) return false;
  map_ = std::move(*map);
  single_ = alone;
  known_ = true;
  asking_ = false;
  ++taken_;
  std::vector<NodeAddress> named = seeds_;
  for (const Shard& shard : map_.shards()) {
    named.push_back(shard.master);
    named.insert(named.end(), shard.replicas.begin(), shard.replicas.end());
  }
  nodes_.keep_only(std::move(named), {StatusCode::unavailable, "the node left the cluster"});
  return true;
}

void ClusterMap::in_vain() {
  asking_ = false;
  if (closed_ || known_) return;
  // The reason of the first seed stands for all.
  const RedisNodeRef seed = seeds_.empty() ? nullptr : nodes_.find(seeds_[0]);
  const std::string why = seed ? ": " + seed->last_error : "";
  told_({StatusCode::unavailable, "no node says where slots are" + why});
}

}  // namespace kv
