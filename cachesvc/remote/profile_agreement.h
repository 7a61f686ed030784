// ProfileAgreement: the profile that all machines of a fleet use for a model: who puts one first
// decides. REMOTE.md, "Profiles".
//
//   length ──there──> value ──verified──> done: the fleet's
//     │ ▲────gone meanwhile┘
//   absent ──> put if absent ──put──> done: one's own
//     ▲───────────────┘ another one was first
//
// Bounded: kMaxRounds of a call, and the length of a value. RemoteTier calls. Loop thread only.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cachesvc/remote/commands.h"

namespace kv {

class ProfileAgreement {
 public:
  using Clock = RemoteCommands::Clock;
  /// `key`: values are sealed with it; null: plain. The others outlive the agreement.
  ProfileAgreement(RedisCluster& cluster, RemoteCommands& commands,
                   std::shared_ptr<const SealKey> key, RemoteCounts& counts)
      : cluster_(cluster), commands_(commands), key_(std::move(key)), counts_(counts) {}
  ProfileAgreement(const ProfileAgreement&) = delete;  // answers point here
  ProfileAgreement& operator=(const ProfileAgreement&) = delete;

  /// The fleet's profile of a model: the one that is at `key`, else `own`, which is put. Its expiry
  /// begins anew. `own` null: nothing is put. Statuses: not_found (nothing is there); corruption
  /// (it is unlinked); unsupported (of another version or key); unavailable; deadline_exceeded;
  /// busy; resource_exhausted.
  void agree(std::string key, std::shared_ptr<const Profile> own, Clock::time_point deadline,
             std::function<void(Result<RemoteProfile>)> done);

 private:
  using Reply = RemoteCommands::Reply;
  struct Agreeing;
  using AgreeingRef = std::shared_ptr<Agreeing>;
  void ask(const AgreeingRef& agreeing);
  void get(const AgreeingRef& agreeing, uint64_t bytes);
  void take(const AgreeingRef& agreeing, std::shared_ptr<uint8_t[]> buffer, uint64_t bytes);
  void put(const AgreeingRef& agreeing);

  RedisCluster& cluster_;
  RemoteCommands& commands_;
  const std::shared_ptr<const SealKey> key_;
  RemoteCounts& counts_;
};

}  // namespace kv
