// A peer's way in and out. See session_peer.h.
#include "cachesvc/daemon/session_peer.h"

#include <utility>

#include "cachesvc/daemon/peer_memory.h"

namespace kv {

Status SessionPeer::enter(const HelloRequest& hello) {
  KV_CHECK(session_ == 0);
  if (hello.min_version > kProtocolVersion || hello.max_version < kProtocolVersion) {
    return unsupported("versions " + std::to_string(hello.min_version) + " to " +
                       std::to_string(hello.max_version) + ", this service speaks " +
                       std::to_string(kProtocolVersion));
  }
  auto right = host_.gate.enter(user_, hello.ns, hello.token);
  if (!right.ok()) {
    host_.core.count_denied();
    host_.events.on(kRefusedNamespace, right.status().message(), 1,
                    std::chrono::steady_clock::now());
    return right.status();
  }
  auto session = host_.core.connect(hello.ns, *right);
  if (!session.ok()) return session.status();
  session_ = *session;
  ns_ = hello.ns;
  return {};
}

bool SessionPeer::may_map() {
  process_ = host_.peers->enter(socket_);
  return process_ != nullptr;
}

bool SessionPeer::may_offer_memory() {
  if (host_.memory_peers >= kMaxMemoryPeers) return false;
  ++host_.memory_peers;
  offers_memory_ = true;
  return true;
}

void SessionPeer::leave(SegmentViews mapped) {
  if (session_ != 0) host_.core.disconnect(session_);
  if (process_) process_->keep(std::move(mapped));
  host_.memory_peers -= std::exchange(offers_memory_, false);
}

}  // namespace kv
