// Transit: memory of bytes that come from clients and go to them, divided among namespaces: bodies
// on their way with the scratch to code them (staging), and replies that are made.
//
// Nothing can be evicted for them, so a part is kept free: half of either account belongs to the
// namespaces by their shares of RAM, whether they use it or not (those without a quota have what
// quotas leave, together). The other half is for whoever comes first. A namespace may also have a
// quota of both together, which it never exceeds. A view of Env; loop thread only.
#pragma once

#include "cachesvc/core/env.h"
#include "cachesvc/core/room_request.h"

namespace kv {

class Transit {
 public:
  explicit Transit(const Env& env) : env_(env) {}

  /// The most that one request of the share can ever have.
  uint64_t most_staging(ShareId share) const;
  uint64_t most_reply(ShareId share) const;
  /// True if the request has to wait, however much RAM is free.
  bool full(const Room& room) const;
  /// Returns: resource_exhausted, naming quota, used and asked, if the request alone or with what
  /// its namespace has under way is over its quota.
  Status within_quota(const Room& room) const;
  /// Bytes that the share has under way.
  uint64_t in_flight(ShareId share) const;

 private:
  uint64_t limit(ChargeKind kind) const;
  uint64_t kept_for(ChargeKind kind, ShareId share) const;
  uint64_t most(ChargeKind kind, ShareId share) const;
  bool full(ChargeKind kind, ShareId share, uint64_t bytes) const;

  const Env& env_;
};

}  // namespace kv
