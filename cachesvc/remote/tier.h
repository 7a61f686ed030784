// RemoteTier: objects in the shared tier: found, taken, put if absent, erased. REMOTE.md.
//
// Whatever fails is a miss with a reason, and is counted. What get() gives was verified, down to
// the id that follows from its content. Nothing is tried again but reads, at a replica. Memory:
// values under way are charged against max_bytes_in_flight, until the last byte that the network
// may still write. Loop thread only; verifying is done there too, so it is not the core's.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/loop/timer.h"
#include "cachesvc/remote/cluster.h"
#include "cachesvc/remote/shared_tier.h"

namespace kv {

struct RemoteTierOptions {
  std::shared_ptr<const SealKey> key;       ///< values are sealed with it; null: plain
  std::chrono::seconds ttl{7 * 24 * 3600};  ///< of what is put
  uint64_t max_bytes_in_flight = 64 << 20;
};

class RemoteTier {
 public:
  using Clock = std::chrono::steady_clock;
  /// `cluster` outlives the tier, and is closed before it goes.
  RemoteTier(RedisCluster& cluster, RemoteTierOptions options);
  RemoteTier(const RemoteTier&) = delete;  // handlers point here
  RemoteTier& operator=(const RemoteTier&) = delete;

  /// Asks for all names at once; answers in their order. At most kMaxRemoteNames.
  void find(std::vector<RemoteName> names, Clock::time_point deadline,
            std::function<void(std::vector<RemoteFound>)> done);
  /// Asks for all lists at once; answers in their order. At most kMaxRemoteNames.
  void list(std::vector<RemoteList> lists, Clock::time_point deadline,
            std::function<void(std::vector<RemoteListed>)> done);
  /// The object that was found `there`. Statuses: not_found (gone, or replaced, meanwhile);
  /// corruption (it is unlinked); unsupported; unavailable; deadline_exceeded; busy (no room).
  void get(const RemoteFound& found, Clock::time_point deadline,
           std::function<void(Result<FileImage>)> done);
  /// Puts the object `name` unless it is there, and has it stand in its block's list. Statuses:
  /// resource_exhausted (the engine is full); invalid_argument; unavailable; deadline_exceeded;
  /// busy.
  void put(const FileImage& image, const RemoteName& name, Clock::time_point deadline,
           std::function<void(Result<RemotePut>)> done);
  /// The fleet's profile of a model: the one that is there, else `own`, which is put. Its expiry
  /// begins anew. `own` null: nothing is put. Statuses: not_found (nothing is there); corruption
  /// (it is unlinked); unsupported (of another version or key); unavailable; deadline_exceeded;
  /// busy; resource_exhausted.
  void agree(const RemoteSpace& space, const Id& fingerprint, std::shared_ptr<const Profile> own,
             Clock::time_point deadline, std::function<void(Result<RemoteProfile>)> done);
  /// Unlinks all parts of these. At most kMaxRemoteNames.
  void erase(std::vector<RemoteName> names, Clock::time_point deadline,
             std::function<void(RemoteErased)> done);

  /// Unlinks all of a namespace, node by node in steps; `unreached` counts nodes.
  void erase_all(const RemoteSpace& space, Clock::time_point deadline,
                 std::function<void(RemoteErased)> done);

  const RemoteCounts& counts() const { return counts_; }
  uint64_t bytes_in_flight() const { return *in_flight_; }

 private:
  struct Getting;
  struct Attempt;
  struct Putting;
  struct Erasing;
  struct Agreeing;
  using AgreeingRef = std::shared_ptr<Agreeing>;
  using ErasingRef = std::shared_ptr<Erasing>;
  using GettingRef = std::shared_ptr<Getting>;
  using PuttingRef = std::shared_ptr<Putting>;
  using Reply = Result<RespReply>;

  std::shared_ptr<const void> charge(uint64_t bytes);
  void run(const std::string& key, bool writes, RedisRequest::Way way, Clock::time_point deadline,
           std::vector<Bytes> command, std::function<void(Reply)> done);
  void set(const std::string& key, std::vector<Bytes> value, bool only_if_absent,
           Clock::time_point deadline, std::function<void(Reply)> done);
  void ask_front(const std::string& key, bool as_write, Clock::time_point deadline,
                 std::function<void(Reply)> done);
  RemoteFound judge(const RemoteName& name, const Reply& reply) const;
  Status attempt(const GettingRef& getting, bool at_replica);
  void take_part(Attempt& attempt, uint64_t index, const Reply& reply);
  void end_attempt(Attempt& attempt);
  void count_miss(const Status& why);
  void drop(const RemoteName& name, const RemoteFront& front, Clock::time_point deadline);
  struct Unlinked {
    std::vector<bool> failed;  // by key: it may be there still
    bool all = true;           // none failed
    uint64_t values = 0;       // first parts that were there
  };
  struct Unlinking;
  void unlink(std::vector<std::string> keys, Clock::time_point deadline,
              std::function<void(Unlinked)> done);
  void unlink_some(const std::shared_ptr<Unlinking>& unlinking);
  void ask_profile(const AgreeingRef& agreeing);
  void get_profile(const AgreeingRef& agreeing, uint64_t bytes);
  void take_profile(const AgreeingRef& agreeing, std::shared_ptr<uint8_t[]> buffer, uint64_t bytes);
  void put_profile(const AgreeingRef& agreeing);
  void erase_some(const ErasingRef& erasing);
  void erase_found(const ErasingRef& erasing, const std::vector<RemoteFound>& found);
  void scan(const ErasingRef& erasing, const NodeAddress& node, const std::string& cursor);
  void scanned(const ErasingRef& erasing, const NodeAddress& node, const RespReply& reply);
  void make_value(const PuttingRef& putting);
  void put_rest(const PuttingRef& putting);
  void put_first(const PuttingRef& putting);
  void put_part(const PuttingRef& putting, uint64_t index, bool only_if_absent,
                std::function<void(Reply)> done);
  void enlist(const RemoteName& name, Clock::time_point deadline);
  void end_put(const PuttingRef& putting, Result<RemotePut> result);

  RedisCluster& cluster_;
  const RemoteTierOptions options_;
  // A charge ends where its bytes do, on any thread.
  std::shared_ptr<std::atomic<uint64_t>> in_flight_ = std::make_shared<std::atomic<uint64_t>>(0);
  RemoteCounts counts_;
};

}  // namespace kv
