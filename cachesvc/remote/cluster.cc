// Requests: to whom, what an answer means, when they end.
#include "cachesvc/remote/cluster.h"

#include <algorithm>
#include <utility>

namespace kv {
namespace {

constexpr int kMaxRedirects = 5;
constexpr size_t kMaxAsked = 3;  // nodes that break under one request

Status unavailable(std::string why) { return {StatusCode::unavailable, std::move(why)}; }

// Answers of a node that is up and of no use.
bool no_service(std::string_view error) {
  return error.starts_with("LOADING") || error.starts_with("CLUSTERDOWN") ||
         error.starts_with("MASTERDOWN");
}

bool no_right(std::string_view error) {
  return error.starts_with("NOAUTH") || error.starts_with("WRONGPASS");
}

}  // namespace

RedisCluster::RedisCluster(boost::asio::io_context& loop, RedisOptions options)
    : loop_(loop),
      options_(std::move(options)),
      nodes_(loop, options_.link),
      map_(loop, nodes_, options_.seeds, [this](const Status& told) { wake(told); }),
      deadlines_(loop.get_executor(), [this] { expire(); }),
      hedge_(loop.get_executor(), [this] { hedge(); }) {}

RedisCluster::~RedisCluster() { close(); }

void RedisCluster::close() {
  if (std::exchange(closed_, true)) return;
  deadlines_.cancel();
  map_.close();
  hedge_.cancel();
  hedges_.clear();
  waiting_.clear();
  while (!calls_.empty()) end(calls_.begin()->second, unavailable("the shared tier is closing"));
  nodes_.close(unavailable("the shared tier is closing"));
}

std::vector<RedisNodeState> RedisCluster::nodes() const {
  std::vector<RedisNodeState> out;
  for (const auto& [address, node] : nodes_.all()) {
    out.push_back({address, node->breaker.state(), node->last_error});
  }
  return out;
}

RedisCounts RedisCluster::counts() const {
  RedisCounts all = counts_;
  all.maps = map_.taken();
  all.failures = nodes_.failures();
  return all;
}

void RedisCluster::run(RedisRequest request) {
  if (closed_) return request.done(unavailable("the shared tier is closed"));
  if (calls_.size() >= kMaxRemoteRequests) {
    return request.done(Status(StatusCode::busy, "too many requests of the shared tier"));
  }
  ++counts_.requests;
  auto call = std::make_shared<Call>();
  call->request = std::move(request);
  call->place = calls_.emplace(call->request.deadline, call);
  arm();
  if (map_.known()) return attempt(call);
  waiting_.push_back(call);
  map_.ask();
}

// The earliest deadline's timer.
void RedisCluster::arm() {
  if (calls_.empty()) return deadlines_.cancel();
  if (deadlines_.due() != calls_.begin()->first) deadlines_.arm_at(calls_.begin()->first);
}

void RedisCluster::expire() {
  const auto now = Clock::now();
  while (!calls_.empty() && calls_.begin()->first <= now) {
    end(calls_.begin()->second,
        Status(StatusCode::deadline_exceeded, "the shared tier did not answer in time"));
  }
  arm();
}

// A copy of the call: its place in calls_ may be the last one that keeps it.
void RedisCluster::end(CallRef call, Result<RespReply> result) {
  if (std::exchange(call->ended, true)) return;
  calls_.erase(call->place);
  auto done = std::move(call->request.done);
  call->request.bytes.clear();
  done(std::move(result));
}

// The master, or for reads a replica if the master is not there, or is slow; null: nobody is.
RedisCluster::NodeRef RedisCluster::choose(const Call& call, bool at_replica) {
  const auto now = Clock::now();
  auto usable = [&](const NodeAddress& a) -> NodeRef {
    if (std::count(call.asked.begin(), call.asked.end(), a) > 0) return nullptr;
    NodeRef n = nodes_.at(a);
    return n->breaker.allow(now) ? n : nullptr;
  };
  if (call.request.node) return usable(*call.request.node);
  const Shard* shard = map_.shard_of(call.request.slot);
  if (shard == nullptr) return nullptr;
  if (!at_replica) {
    if (NodeRef master = usable(shard->master)) return master;
  }
  if (call.request.writes) return nullptr;
  const size_t first = turn_++;
  for (size_t i = 0; i < shard->replicas.size(); ++i) {
    if (NodeRef n = usable(shard->replicas[(first + i) % shard->replicas.size()])) {
      ++counts_.to_replicas;
      return n;
    }
  }
  return nullptr;
}

void RedisCluster::attempt(const CallRef& call) {
  if (call->ended) return;
  NodeRef to = choose(*call, call->request.at_replica);
  if (to) {
    map_.ask_if_old();
    hedge_later(call);
    return send(call, to, false);
  }
  map_.ask_soon();
  const RedisRequest& r = call->request;
  const std::string of = r.node ? to_string(*r.node) : "slot " + std::to_string(r.slot);
  end(call, unavailable(of + " is not served now"));
}

// Questions only: what is read into a place may be written there by one node at a time.
void RedisCluster::hedge_later(const CallRef& call) {
  const RedisRequest& r = call->request;
  if (r.writes || !r.into.empty() || r.at_replica || call->hedged) return;
  if (options_.hedge_after.count() == 0 || hedges_.size() >= kMaxRemoteRequests) return;
  call->hedged = true;
  hedges_.emplace_back(Clock::now() + options_.hedge_after, call);
  if (!hedge_.armed()) hedge_.arm_at(hedges_.front().first);
}

void RedisCluster::hedge() {
  const auto now = Clock::now();
  while (!hedges_.empty() && hedges_.front().first <= now) {
    const CallRef call = std::move(hedges_.front().second);
    hedges_.pop_front();
    if (call->ended || closed_) continue;
    NodeRef to = choose(*call, true);
    if (!to) continue;
    ++counts_.hedges;
    send(call, to, false);
  }
  if (!hedges_.empty()) hedge_.arm_at(hedges_.front().first);
}

void RedisCluster::send(const CallRef& call, const NodeRef& to, bool asking) {
  RemoteLink& link = nodes_.link(*to, call->request.way);
  if (!link.has_room()) {
    if (to->breaker.state() == BreakerState::probing) nodes_.failed(*to, "too many commands wait");
    return end(call, Status(StatusCode::busy, to_string(to->address) + ": too many commands wait"));
  }
  if (asking) {
    static const Bytes ask = remote_words({"ASKING"});
    link.send({{ask}, {}, nullptr, [](const Result<RespReply>&) {}});
  }
  const RedisRequest& r = call->request;
  link.send({r.bytes, r.into, r.keep,
             [this, call, to](Result<RespReply> reply) { answered(call, to, std::move(reply)); }});
}

void RedisCluster::answered(const CallRef& call, const NodeRef& from, Result<RespReply> reply) {
  if (!reply.ok()) return broke(call, from, reply.status());
  if (reply->type == RespType::error) return refused(call, from, reply->text);
  from->breaker.answered();
  end(call, std::move(reply));
}

void RedisCluster::refused(const CallRef& call, const NodeRef& from, const std::string& error) {
  if (no_service(error))
    return broke(call, from, unavailable(to_string(from->address) + ": " + error));
  if (no_right(error)) {
    const Status why(StatusCode::denied, to_string(from->address) + ": " + error);
    nodes_.failed(*from, why.message());
    return end(call, why);
  }
  from->breaker.answered();
  if (auto redirect = parse_redirect(error, from->address)) return redirected(call, *redirect);
  if (error.starts_with("READONLY")) {
    map_.ask_soon();
    return end(call, unavailable(to_string(from->address) + " is a replica now"));
  }
  const StatusCode code = error.starts_with("OOM")      ? StatusCode::resource_exhausted
                          : error.starts_with("NOPERM") ? StatusCode::denied
                                                        : StatusCode::io_error;
  end(call, Status(code, to_string(from->address) + ": " + error));
}

void RedisCluster::redirected(const CallRef& call, const Redirect& redirect) {
  ++counts_.redirects;
  if (!redirect.ask) map_.moved(redirect.slot, redirect.to);
  if (call->ended) return;
  if (closed_ || ++call->redirects > kMaxRedirects) {
    return end(call, unavailable("slot " + std::to_string(redirect.slot) + " moves too often"));
  }
  if (!redirect.ask) return attempt(call);
  NodeRef to = nodes_.at(redirect.to);
  if (to->breaker.allow(Clock::now())) return send(call, to, true);
  end(call, unavailable(to_string(redirect.to) + " is not there"));
}

// A node did not answer: reads are tried elsewhere.
void RedisCluster::broke(const CallRef& call, const NodeRef& from, const Status& why) {
  if (!closed_) {
    nodes_.failed(*from, why.message());
    map_.ask_soon();
  }
  if (call->ended) return;
  call->asked.push_back(from->address);
  if (closed_ || call->request.writes || call->asked.size() >= kMaxAsked ||
      why.code() == StatusCode::denied) {
    return end(call, why);
  }
  NodeRef to = choose(*call, call->request.at_replica);
  to ? send(call, to, false) : end(call, why);
}

// Calls that waited for the first map go on, or end with `why`.
void RedisCluster::wake(const Status& why) {
  for (const CallRef& call : std::exchange(waiting_, {})) {
    why.ok() ? attempt(call) : end(call, why);
  }
}

}  // namespace kv
