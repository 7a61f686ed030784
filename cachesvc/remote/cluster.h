// RedisCluster: commands to the node that serves their key, of a cluster or of a single server.
// REMOTE.md, "Nodes".
//
// run() ends every request once: with a reply that is no redirect and no error, or with a status.
// It never waits for a node that is known not to be there. The map of slots is fetched when it is
// first needed. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cachesvc/loop/timer.h"
#include "cachesvc/remote/breaker.h"
#include "cachesvc/remote/link.h"
#include "cachesvc/remote/slots.h"

namespace kv {

inline constexpr size_t kMaxRemoteRequests = 8192;

struct RedisOptions {
  std::vector<NodeAddress> seeds;  ///< who is asked for the map first
  RemoteLinkOptions link;
  /// A read that its master has not answered by then is asked of a replica too; 0: never.
  std::chrono::milliseconds hedge_after{50};
};

struct RedisRequest {
  enum class Way : uint8_t { question, value };  ///< which of a node's connections
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
  const RedisCounts& counts() const { return counts_; }
  /// Masters of the map as it is known; none before the first request has ended.
  std::vector<NodeAddress> masters() const;
  boost::asio::io_context& loop() { return loop_; }
  std::chrono::milliseconds hedge_after() const { return options_.hedge_after; }
  bool single() const { return single_; }  ///< a server without a cluster

 private:
  struct Node {
    NodeAddress address;
    Breaker breaker;
    std::string last_error;
    std::shared_ptr<RemoteLink> question, value;
  };
  struct Call {
    RedisRequest request;
    int redirects = 0;
    bool hedged = false;
    std::vector<NodeAddress> asked;  // that did not answer
    bool ended = false;
    std::multimap<Clock::time_point, std::shared_ptr<Call>>::iterator place;
  };
  using CallRef = std::shared_ptr<Call>;
  using NodeRef = std::shared_ptr<Node>;

  NodeRef node(const NodeAddress& address);
  NodeRef choose(const Call& call, bool at_replica);
  void attempt(const CallRef& call);
  void send(const CallRef& call, const NodeRef& to, bool asking);
  void answered(const CallRef& call, const NodeRef& from, Result<RespReply> reply);
  void refused(const CallRef& call, const NodeRef& from, const std::string& error);
  void redirected(const CallRef& call, const Redirect& redirect);
  void broke(const CallRef& call, const NodeRef& from, const Status& why);
  void end(CallRef call, Result<RespReply> result);
  void count_failure(Node& of, const std::string& why);
  RemoteLink& link_of(Node& to, RedisRequest::Way way);
  void hedge_later(const CallRef& call);
  void hedge();
  void expire();
  void arm();

  void refresh_soon();
  void refresh();
  void ask_for_map(std::vector<NodeAddress> candidates);
  void take_map(SlotMap map);
  void wake(const Status& why);

  boost::asio::io_context& loop_;
  const RedisOptions options_;
  bool closed_ = false, single_ = false;
  SlotMap map_;
  bool mapped_ = false;
  std::map<NodeAddress, NodeRef> nodes_;
  std::multimap<Clock::time_point, CallRef> calls_;  // by deadline
  std::vector<CallRef> waiting_;                     // for the first map
  std::deque<std::pair<Clock::time_point, CallRef>>
      hedges_;  // questions, by when a replica is asked
  bool refreshing_ = false;
  Clock::time_point refreshed_{};
  size_t turn_ = 0;  // of nodes asked for the map, and of replicas
  RedisCounts counts_;
  Timer deadlines_, refresh_, hedge_;
};

}  // namespace kv
