// RemoteCommands: commands on keys of the shared tier, and the bytes of values that are under way.
//
// Bytes under way are charged against a limit, until the last of them that the network may still
// write or read is gone: on any thread, and after the commands, where the network outlives them.
// RemoteTier and ProfileAgreement call. Loop thread only, but for the ends of charges.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/remote/cluster.h"
#include "cachesvc/remote/shared_tier.h"

namespace kv {

class RemoteCommands {
 public:
  using Clock = std::chrono::steady_clock;
  using Reply = Result<RespReply>;
  struct Limits {
    std::chrono::seconds ttl;  ///< of what is set
    uint64_t max_bytes_in_flight;
  };

  /// `cluster` and `counts` outlive the commands.
  RemoteCommands(RedisCluster& cluster, Limits limits, RemoteCounts& counts)
      : cluster_(cluster), limits_(limits), counts_(counts) {}
  RemoteCommands(const RemoteCommands&) = delete;  // answers point here
  RemoteCommands& operator=(const RemoteCommands&) = delete;

  /// Bytes of a value, as long as the charge lives. Null: no room, counted as busy.
  std::shared_ptr<const void> charge(uint64_t bytes);
  uint64_t bytes_in_flight() const { return *in_flight_; }

  /// A short command on the key. `as_write`: the master's word, as a replica may not know yet.
  void ask(const std::string& key, bool as_write, Clock::time_point deadline, Bytes command,
           std::function<void(Reply)> done);
  /// The first bytes of a value.
  void ask_front(const std::string& key, bool as_write, Clock::time_point deadline,
                 std::function<void(Reply)> done);
  /// Sets a value of these pieces, which expires.
  void set(const std::string& key, std::vector<Bytes> value, bool only_if_absent,
           Clock::time_point deadline, std::function<void(Reply)> done);
  /// Has the key expire anew. Nobody waits for it.
  void renew(const std::string& key, Clock::time_point deadline);

  struct Unlinked {
    std::vector<bool> failed;  ///< by key: it may be there still
    bool all = true;           ///< none failed
    uint64_t values = 0;       ///< first parts that were there
  };
  /// Unlinks the keys, some at a time: more at once than a link takes would be refused.
  void unlink(std::vector<std::string> keys, Clock::time_point deadline,
              std::function<void(Unlinked)> done);

 private:
  struct Unlinking;
  void run(const std::string& key, bool writes, RedisRequest::Way way, Clock::time_point deadline,
           std::vector<Bytes> command, std::function<void(Reply)> done);
  void unlink_some(const std::shared_ptr<Unlinking>& unlinking);

  RedisCluster& cluster_;
  const Limits limits_;
  RemoteCounts& counts_;
  std::shared_ptr<std::atomic<uint64_t>> in_flight_ = std::make_shared<std::atomic<uint64_t>>(0);
};

}  // namespace kv
