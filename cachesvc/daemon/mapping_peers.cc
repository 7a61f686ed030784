// The process that a connection is of, and its end.
#include "cachesvc/daemon/mapping_peers.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

namespace kv {

bool MappingPeer::ended() const {
  pollfd readable{process_.native_handle(), POLLIN, 0};
  return ::poll(&readable, 1, 0) != 0;
}

void MappingPeer::keep(SegmentViews views) {
  if (views.empty()) return;
  const bool waits = !kept_.empty();
  for (auto& view : views) kept_[view->id()] = std::move(view);
  if (waits) return;
  process_.async_wait(
      boost::asio::posix::stream_descriptor::wait_read,
      [self = shared_from_this()](const boost::system::error_code&) { self->kept_.clear(); });
}

void MappingPeer::close() {
  boost::system::error_code ignored;
  process_.close(ignored);
  kept_.clear();
}

MappingPeers::~MappingPeers() {
  for (auto& [pid, weak] : peers_) {
    if (auto peer = weak.lock()) peer->close();
  }
}

std::shared_ptr<MappingPeer> MappingPeers::enter(int socket) {
  ucred who{};
  socklen_t size = sizeof(who);
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.pid <= 0) {
    return nullptr;
  }
  // A process id is free for another process only once the first one has ended.
  auto known = peers_.find(who.pid);
  if (known != peers_.end()) {
    if (auto peer = known->second.lock(); peer && !peer->ended()) return peer;
  }
  std::erase_if(peers_, [](const auto& entry) { return entry.second.expired(); });
  if (peers_.size() >= kMaxMappingPeers) return nullptr;
  const auto pidfd = static_cast<int>(::syscall(SYS_pidfd_open, who.pid, 0));
  if (pidfd < 0) return nullptr;
  auto peer = std::make_shared<MappingPeer>(loop_, pidfd);
  peers_[who.pid] = peer;
  return peer;
}

}  // namespace kv
