// RedisCluster: commands to the node that serves their key, of a cluster or of a single server.
// REMOTE.md, "Nodes".
//
// run() ends every request once: with a reply that is no redirect and no error, or with a status.
// It never waits for a node that is known not to be there. Requests that come before the map of
// slots is known (ClusterMap) wait for it. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/loop/timer.h"
#include "cachesvc/remote/cluster_map.h"
#include "cachesvc/remote/nodes.h"

namespace kv {

inline constexpr size_t kMaxRemoteRequests = 8192;

struct RedisOptions {
  std::vector<NodeAddress> seeds;  ///< who is asked for the map first
  RemoteLinkOptions link;
  /// A read that its master has not answered by then is asked of a replica too; 0: never.
  std::chrono::milliseconds hedge_after{50};
};

struct RedisRequest {
  using Way = RedisWay;
  uint16_t slot = 0;
  std::optional<NodeAddress> node{};  ///< asked instead of the slot's
  bool writes = false;
  bool at_replica = false;  ///< a read that its master is slow with
  Way way = Way::question;
  std::chrono::steady_clock::time_point deadline{};
  std::vector<Bytes> bytes;          ///< the command, see remote_words()
  std::span<uint8_t> into{};         ///< as RemoteCommand's
  std::shared_ptr<const void> keep;  ///< as RemoteCommand's
  /// Statuses: deadline_exceeded; unavailable (no node, or it broke); busy (too much under way);
  /// denied; resource_exhausted (the engine is full); io_error (another error of the engine's).
  std::function<void(Result<RespReply>)> done;
};

struct RedisNodeState {
  NodeAddress address;
  BreakerState breaker = BreakerState::closed;
  std::string last_error;  ///< of the latest failure, ever
};

struct RedisCounts {
  uint64_t requests = 0, redirects = 0, maps = 0, failures = 0;
  uint64_t to_replicas = 0, hedges = 0;  // of requests; `hedges` of questions alone
};

class RedisCluster {
 public:
  using Clock = std::chrono::steady_clock;
  RedisCluster(boost::asio::io_context& loop, RedisOptions options);
  ~RedisCluster();
  RedisCluster(const RedisCluster&) = delete;  // handlers point here
  RedisCluster& operator=(const RedisCluster&) = delete;

  /// Begins the request; `done` may be called before it returns.
  void run(RedisRequest request);
  /// Ends all requests with `unavailable`; later ones too.
  void close();
  std::vector<RedisNodeState> nodes() const;
  RedisCounts counts() const;
  /// Masters of the map as it is known; none before the first request has ended.
  std::vector<NodeAddress> masters() const { return map_.masters(); }
  boost::asio::io_context& loop() { return loop_; }
  std::chrono::milliseconds hedge_after() const { return options_.hedge_after; }
  bool single() const { return map_.single(); }  ///< a server without a cluster

 private:
  struct Call {
    RedisRequest request;
    int redirects = 0;
    bool hedged = false;
    std::vector<NodeAddress> asked;  // that did not answer
    bool ended = false;
    std::multimap<Clock::time_point, std::shared_ptr<Call>>::iterator place;
  };
  using CallRef = std::shared_ptr<Call>;
  using NodeRef = RedisNodeRef;

  NodeRef choose(const Call& call, bool at_replica);
  void attempt(const CallRef& call);
  void send(const CallRef& call, const NodeRef& to, bool asking);
  void answered(const CallRef& call, const NodeRef& from, Result<RespReply> reply);
  void refused(const CallRef& call, const NodeRef& from, const std::string& error);
  void redirected(const CallRef& call, const Redirect& redirect);
  void broke(const CallRef& call, const NodeRef& from, const Status& why);
  void end(CallRef call, Result<RespReply> result);
  void hedge_later(const CallRef& call);
  void hedge();
  void expire();
  void arm();
  void wake(const Status& why);

  boost::asio::io_context& loop_;
  const RedisOptions options_;
  bool closed_ = false;
  RedisNodes nodes_;
  ClusterMap map_;
  std::multimap<Clock::time_point, CallRef> calls_;  // by deadline
  std::vector<CallRef> waiting_;                     // for the first map
  std::deque<std::pair<Clock::time_point, CallRef>>
      hedges_;       // questions, by when a replica is asked
  size_t turn_ = 0;  // of replicas
  RedisCounts counts_;
  Timer deadlines_, hedge_;
};

}  // namespace kv
