// RemoteTier: objects in the shared tier: found, taken, put if absent, erased. REMOTE.md.
//
// Whatever fails is a miss with a reason, and is counted. What get() gives was verified, down to
// the id that follows from its content. Nothing is tried again but reads, at a replica. Values
// under way are bounded (RemoteCommands). Loop thread only; verifying is done there too, so it is
// not the core's.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cachesvc/loop/timer.h"
#include "cachesvc/remote/profile_agreement.h"

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
  /// As ProfileAgreement::agree.
  void agree(const RemoteSpace& space, const Id& fingerprint, std::shared_ptr<const Profile> own,
             Clock::time_point deadline, std::function<void(Result<RemoteProfile>)> done) {
    agreement_.agree(remote_profile_key(space, fingerprint), std::move(own), deadline,
                     std::move(done));
  }
  /// Unlinks all parts of these. At most kMaxRemoteNames.
  void erase(std::vector<RemoteName> names, Clock::time_point deadline,
             std::function<void(RemoteErased)> done);

  /// Unlinks all of a namespace, node by node in steps; `unreached` counts nodes.
  void erase_all(const RemoteSpace& space, Clock::time_point deadline,
                 std::function<void(RemoteErased)> done);

  const RemoteCounts& counts() const { return counts_; }
  uint64_t bytes_in_flight() const { return commands_.bytes_in_flight(); }

 private:
  struct Getting;
  struct Attempt;
  struct Putting;
  struct Erasing;
  using ErasingRef = std::shared_ptr<Erasing>;
  using GettingRef = std::shared_ptr<Getting>;
  using PuttingRef = std::shared_ptr<Putting>;
  using Reply = RemoteCommands::Reply;
  using Unlinked = RemoteCommands::Unlinked;

  RemoteFound judge(const RemoteName& name, const Reply& reply) const;
  Status attempt(const GettingRef& getting, bool at_replica);
  void take_part(Attempt& attempt, uint64_t index, const Reply& reply);
  void end_attempt(Attempt& attempt);
  void count_miss(const Status& why);
  void drop(const RemoteName& name, const RemoteFront& front, Clock::time_point deadline);
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
  RemoteCounts counts_;
  RemoteCommands commands_;
  ProfileAgreement agreement_;
};

}  // namespace kv
