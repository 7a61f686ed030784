// RedisNodes: the nodes that are known, each with its breaker and its links. REMOTE.md, "Nodes".
//
// A node is one whoever names it: the map of slots, a redirect or a seed. Its links are made when
// they are first needed, and again after they broke. Whoever sends on a link tells the breaker what
// came of it, by answered() or failed(). Bounded: by the map of slots and the redirects between two
// maps, as keep_only() drops the others. RedisCluster owns it. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/remote/breaker.h"
#include "cachesvc/remote/link.h"
#include "cachesvc/remote/slots.h"

namespace kv {

/// Which of a node's connections.
enum class RedisWay : uint8_t { question, value };

struct RedisNode {
  NodeAddress address;
  Breaker breaker;
  std::string last_error;                       ///< of the latest failure, ever
  std::shared_ptr<RemoteLink> question, value;  ///< null: not needed yet
};
using RedisNodeRef = std::shared_ptr<RedisNode>;

class RedisNodes {
 public:
  using Clock = std::chrono::steady_clock;
  /// `options` outlives the nodes.
  RedisNodes(boost::asio::io_context& loop, const RemoteLinkOptions& options)
      : loop_(loop), options_(options) {}
  RedisNodes(const RedisNodes&) = delete;  // links point to its options
  RedisNodes& operator=(const RedisNodes&) = delete;

  /// The node of the address, new if nobody has named it.
  RedisNodeRef at(const NodeAddress& address);
  /// Null: nobody has named it.
  RedisNodeRef find(const NodeAddress& address) const;
  /// A link that is not closed. It may have no room.
  RemoteLink& link(RedisNode& to, RedisWay way);
  /// A node did not answer, or to no use. Counted once for all commands of one failure.
  void failed(RedisNode& of, const std::string& why);

  const std::map<NodeAddress, RedisNodeRef>& all() const { return nodes_; }
  /// Nodes whose breaker is closed.
  std::vector<NodeAddress> up() const;
  uint64_t failures() const { return failures_; }
  /// Drops the nodes that are not named; commands of theirs end with `why`.
  void keep_only(std::vector<NodeAddress> named, const Status& why);
  /// Drops all of them.
  void close(const Status& why);

 private:
  boost::asio::io_context& loop_;
  const RemoteLinkOptions& options_;
  std::map<NodeAddress, RedisNodeRef> nodes_;
  uint64_t failures_ = 0;
};

}  // namespace kv
