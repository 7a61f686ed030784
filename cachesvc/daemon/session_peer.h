// SessionPeer: the client at the other end of a session: who it is, and what it may do.
//
//   stranger ──enter()──> in its namespace ──leave()──> gone
//
// Its user is the kernel's word, its namespace the hello's; the Gate says whether the two go
// together. A process that is known may be given segments, and has those that it leaves with. Of
// the sessions that hand over memory it is counted until it leaves. Requests asks, Session has it
// leave once. Loop thread only. PROTOCOL.md, "Connections" and "Pools".
#pragma once

#include <memory>
#include <string>

#include "cachesvc/daemon/session_host.h"

namespace kv {

class SessionPeer {
 public:
  /// `socket` is open until the peer leaves.
  SessionPeer(SessionHost& host, int socket, uint32_t user)
      : host_(host), socket_(socket), user_(user) {}
  SessionPeer(const SessionPeer&) = delete;  // counted once
  SessionPeer& operator=(const SessionPeer&) = delete;

  /// Begins the core's session in the namespace that the hello names. Precondition: it has none.
  /// Returns: unsupported (version), denied, and as CacheCore::connect.
  Status enter(const HelloRequest& hello);
  /// True if the peer's process is known, so that it may be given segments.
  bool may_map();
  /// True if the peer may hand over memory. Precondition: it was not asked before.
  bool may_offer_memory();
  /// Ends the core's session: uncommitted objects are forgotten. `mapped`: the segments that the
  /// peer had, which stay its process's until that has ended.
  void leave(SegmentViews mapped);

  uint32_t user() const { return user_; }
  uint64_t session() const { return session_; }  ///< the core's; 0: no hello yet
  const std::string& ns() const { return ns_; }  ///< the hello's; empty: none yet

 private:
  SessionHost& host_;
  const int socket_;
  const uint32_t user_;
  uint64_t session_ = 0;
  std::string ns_;
  std::shared_ptr<MappingPeer> process_;  // null: it may map nothing
  bool offers_memory_ = false;            // counted in host_.memory_peers
};

}  // namespace kv
