// FetchReplies: the two ways in which a connection's fetches are answered: objects that travel, or
// places in segments that the client has mapped.
//
//   fetch ──> core ──> FetchFrames, in turns ──────────────────────────────────> sent
//   fetch_mapped ──> core ──> MappedFrames ──> segments announced ──> in turns ──> sent
//
// Loop thread only. PROTOCOL.md, "A fetch" and "Pools".
#pragma once

#include <memory>
#include <string>

#include "cachesvc/daemon/connection.h"
#include "cachesvc/daemon/fetch_frames.h"
#include "cachesvc/daemon/mapped_frames.h"
#include "cachesvc/daemon/mappings.h"
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
  /// Likewise, for a client of `ns`, which lives as long as the connection. Segments are enabled.
  void fetch_mapped(uint64_t session, const std::string& ns, uint64_t request, FetchCall call,
                    CallTerms terms, std::shared_ptr<RoomCharges> room);

 private:
  void send_fetch(uint64_t request, const std::shared_ptr<FetchFrames>& reply);
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
