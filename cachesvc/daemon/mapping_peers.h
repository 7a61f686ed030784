// MappingPeers: the processes that were given segments. A mapping outlives its connection, and its
// memory is in use until it is unmapped: so segments that a connection leaves behind, without a
// word that they are unmapped, stay those of its process until that has ended (pidfd). Children
// that it has forked are not counted: nobody tells the service of them.
//
// Bounded: kMaxMappingPeers processes, each with at most the pool's segments. Loop thread only.
// PROTOCOL.md, "Pools".
#pragma once

#include <boost/asio/posix/stream_descriptor.hpp>
#include <map>
#include <memory>
#include <vector>

#include "memory/segment_store.h"

namespace kv {

inline constexpr size_t kMaxMappingPeers = 256;

using SegmentViews = std::vector<std::shared_ptr<const SegmentView>>;

/// One process. Whoever holds it has a connection to it, or waits for its end.
class MappingPeer : public std::enable_shared_from_this<MappingPeer> {
 public:
  /// `pidfd`: the process; closed with this.
  MappingPeer(const boost::asio::any_io_executor& loop, int pidfd) : process_(loop, pidfd) {}
  MappingPeer(const MappingPeer&) = delete;  // owns the descriptor
  MappingPeer& operator=(const MappingPeer&) = delete;

  bool ended() const;
  /// Keeps the segments until the process has ended.
  void keep(SegmentViews views);
  /// The service ends: nothing is waited for any more.
  void close();

 private:
  mutable boost::asio::posix::stream_descriptor process_;
  std::map<uint32_t, std::shared_ptr<const SegmentView>> kept_;
};

class MappingPeers {
 public:
  explicit MappingPeers(boost::asio::any_io_executor loop) : loop_(std::move(loop)) {}
  ~MappingPeers();
  MappingPeers(const MappingPeers&) = delete;  // owns the peers' waits
  MappingPeers& operator=(const MappingPeers&) = delete;

  /// The process at the other end of a Unix socket. Null: the kernel doesn't say which it is, or
  /// there are too many: it is given no segments.
  std::shared_ptr<MappingPeer> enter(int socket);

 private:
  const boost::asio::any_io_executor loop_;
  std::map<int, std::weak_ptr<MappingPeer>> peers_;  // by process id
};

}  // namespace kv
