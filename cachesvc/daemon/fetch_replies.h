// FetchReplies: the three ways in which a connection's fetches are answered: objects that travel,
// payloads that are written into the client's memory, or places in segments that it has mapped.
//
//   fetch ──> core ──> FetchFrames, in turns ──────────────────────────────────> sent
//   fetch_into ──> core ──> FetchFrames, in turns ──> written by a worker ─────> sent
//   fetch_mapped ──> core ──> MappedFrames ──> segments announced ──> in turns ──> sent
//
// Loop thread only. PROTOCOL.md, "A fetch" and "Pools".
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cachesvc/daemon/connection.h"
#include "cachesvc/daemon/fetch_frames.h"
#include "cachesvc/daemon/mapped_frames.h"
#include "cachesvc/daemon/mappings.h"
#include "cachesvc/daemon/peer_memory.h"
#include "cachesvc/daemon/server_options.h"

namespace kv {

class FetchReplies {
 public:
  FetchReplies(Connection& to, CacheCore& core, Mappings& mappings, const ServerOptions& options)
      : to_(to), core_(core), mappings_(mappings), options_(options) {}
  FetchReplies(const FetchReplies&) = delete;  // calls point here
  FetchReplies& operator=(const FetchReplies&) = delete;

  /// `room` has the charges of the request's body until the core has answered.
  void fetch(uint64_t session, uint64_t request, FetchCall call, CallTerms terms,
             std::shared_ptr<RoomCharges> room);
  /// Likewise; `memory` is the one that the call names.
  void fetch_into(uint64_t session, uint64_t request, FetchInto call,
                  std::shared_ptr<const PeerMemory> memory, CallTerms terms,
                  std::shared_ptr<RoomCharges> room);
  /// Likewise, for a client of `ns`, which lives as long as the connection. Segments are enabled.
  void fetch_mapped(uint64_t session, const std::string& ns, uint64_t request, FetchCall call,
                    CallTerms terms, std::shared_ptr<RoomCharges> room);

 private:
  void send_fetch(uint64_t request, const std::shared_ptr<FetchFrames>& reply);
  using Then = std::function<void(const std::shared_ptr<FetchFrames>&)>;
  void made(uint64_t request, const std::shared_ptr<FetchFrames>& reply, const Then& then);
  void place(const std::string& ns, uint64_t request, const MappedCall& call, FetchReply reply);
  void announce_then_send(const std::string& ns, uint64_t request,
                          const std::shared_ptr<MappedFrames>& reply);
  void send_mapped(uint64_t request, const std::shared_ptr<MappedFrames>& reply);
  void queue(std::vector<OutFrame> frames);

  Connection& to_;
  CacheCore& core_;
  Mappings& mappings_;
  const ServerOptions& options_;
};

}  // namespace kv
