// Why: answers those who ask what became of recent requests, or what would become of one. A session
// with the right to all sees every namespace's, another one its own. Loop thread only.
#pragma once

#include "cachesvc/core/calls.h"
#include "cachesvc/core/misses.h"
#include "cachesvc/core/request_ring.h"

namespace kv {

class Why {
 public:
  Why(Env& env, ObjectIndex& index, Calls& calls, const Misses& misses, const RequestRing& ring)
      : env_(env), index_(index), calls_(calls), misses_(misses), ring_(ring) {}
  Why(const Why&) = delete;  // one of a core
  Why& operator=(const Why&) = delete;

  void why(uint64_t session, WhyRequest request, CallTerms terms,
           std::function<void(Result<WhyReply>)> done);

 private:
  Result<WhyReply> records(const WhyRequest& request, const SessionState& asker) const;
  Result<WhyReply> question(WhyRequest request, const SessionState& asker) const;

  Env& env_;
  ObjectIndex& index_;
  Calls& calls_;
  const Misses& misses_;
  const RequestRing& ring_;
};

}  // namespace kv
