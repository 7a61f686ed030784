// ClusterMap: the map of slots as it is known, and when it is asked for: when it is first needed,
// and whenever it may have changed. REMOTE.md, "Nodes".
//
//   unknown ──ask()──> asking ──a node says──> known ──a redirect, a failure, its age──> asking
//      └────────<──nobody says──┘                └──────────────<──nobody says────────────┘
//
// A map is known for good once one is: it may be an old one. Bounded: one question at a time, at
// most one round of them in kRefreshPause after the first. RedisCluster owns it, and is told how
// each round ends. Loop thread only.
#pragma once

#include <boost/asio/io_context.hpp>
#include <functional>
#include <vector>

#include "cachesvc/loop/timer.h"
#include "cachesvc/remote/nodes.h"
#include "cachesvc/remote/slots.h"

namespace kv {

class ClusterMap {
 public:
  using Clock = std::chrono::steady_clock;
  /// `seeds`: who is asked if no other node is up. `told`: with ok, there is a new map; with
  /// unavailable, there is none at all and nobody has one now. All outlive the map.
  ClusterMap(boost::asio::io_context& loop, RedisNodes& nodes,
             const std::vector<NodeAddress>& seeds, std::function<void(const Status&)> told);
  ClusterMap(const ClusterMap&) = delete;  // handlers point here
  ClusterMap& operator=(const ClusterMap&) = delete;

  bool known() const { return known_; }
  bool single() const { return single_; }  ///< a server without a cluster
  /// Null: nobody serves the slot.
  const Shard* shard_of(uint16_t slot) const { return map_.shard_of(slot); }
  std::vector<NodeAddress> masters() const;
  uint64_t taken() const { return taken_; }  ///< maps

  /// Asks now, unless it is being asked for or nobody answered just now. `told` may be called
  /// before it returns.
  void ask();
  /// Asks soon: it may have changed.
  void ask_soon();
  /// Asks soon if it is old: a replica may have come.
  void ask_if_old();
  /// MOVED: the slot is served by this master. The rest may have changed too.
  void moved(uint16_t slot, const NodeAddress& master);
  /// Asks no more; nobody is told any more.
  void close();

 private:
  void ask_one_of(std::vector<NodeAddress> candidates);
  bool take(const NodeAddress& from, const RespReply& reply);
  void in_vain();

  RedisNodes& nodes_;
  const std::vector<NodeAddress>& seeds_;
  const std::function<void(const Status&)> told_;
  SlotMap map_;
  bool known_ = false, single_ = false, asking_ = false, closed_ = false;
  Clock::time_point asked_{};
  size_t turn_ = 0;  // of nodes that are up
  uint64_t taken_ = 0;
  Timer timer_;
};

}  // namespace kv
