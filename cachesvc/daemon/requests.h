// Requests: one connection's calls of the core. Each is answered once, under its request's id, by
// Replies or FetchReplies. Loop thread only. PROTOCOL.md, "Messages".
#pragma once

#include <memory>
#include <string>

#include "cachesvc/daemon/fetch_replies.h"
#include "cachesvc/daemon/peer_memory.h"
#include "cachesvc/daemon/replies.h"
#include "cachesvc/daemon/session_peer.h"
#include "proto/message.h"

namespace kv {

class Requests {
 public:
  /// The connection, and what requests alone need of it.
  class Host : public Connection {
   public:
    virtual int take_descriptor() = 0;  ///< the one that came first; -1: none
    /// The hello is answered with ok. `keep_descriptors`: those that come from now on are memory.
    virtual void greeted(bool keep_descriptors) = 0;
    virtual void last_request() = 0;  ///< takes no more requests; closes once all is sent

   protected:
    ~Host() = default;
  };

  /// `server` and `peer` outlive the requests.
  Requests(Host& host, SessionHost& server, SessionPeer& peer)
      : host_(host),
        server_(server),
        core_(server.core),
        peer_(peer),
        mappings_(core_),
        replies_(host, core_, peer.ns()),
        fetches_(host, core_, mappings_, server.options) {}
  Requests(const Requests&) = delete;  // calls point here
  Requests& operator=(const Requests&) = delete;

  /// `room` has the body's charges, if it has any; `dropped`: why there is no body.
  void answer(Frame frame, std::shared_ptr<RoomCharges> room, const Status& dropped);
  /// True for frames that have no answer: leases and mappings that have ended, and cancels.
  bool took(const Frame& frame, Status& status);
  /// Tells a client that has the segment mapped to let it go.
  void revoke(uint32_t segment);
  Mappings& mappings() { return mappings_; }

 private:
  void dispatch(const InFrame& in);
  void handle_hello(const InFrame& in);
  void handle_put(const InFrame& in);
  void handle_memory(const InFrame& in);
  void handle_put_from(const InFrame& in);
  void handle_open(const InFrame& in);
  void handle_commit(const InFrame& in);
  void handle_abort(const InFrame& in);
  void handle_fetch(const InFrame& in);
  void handle_fetch_into(const InFrame& in);
  void handle_fetch_mapped(const InFrame& in);
  void handle_erase(const InFrame& in);
  void handle_stats(const InFrame& in);
  void handle_renew(const InFrame& in);
  void handle_release(const InFrame& in);
  Status cancel(const Frame& frame);

  template <typename T>
  bool decode_or_refuse(const InFrame& in, T& message, CallTerms& terms);
  template <typename T, typename Then>
  void decoded(const InFrame& in, Then then);
  template <typename Message, typename T, typename Reply = T>
  void forward(const InFrame& in, FrameType type,
               void (CacheCore::*verb)(uint64_t, Message, CallTerms, Done<Result<T>>));
  CallTerms terms_of(const FrameHeader& header, uint32_t timeout_ms) const;

  Host& host_;
  SessionHost& server_;
  CacheCore& core_;
  SessionPeer& peer_;
  Mappings mappings_;
  Replies replies_;
  FetchReplies fetches_;
  PeerMemories memories_;
};

}  // namespace kv
