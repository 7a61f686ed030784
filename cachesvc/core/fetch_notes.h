// FetchNotes: what is told of a fetch, a lookup or a prefetch: counters, times, and the request
// ring with the reason of what is missing. Fetches calls. Loop thread only.
#pragma once

#include "cachesvc/core/env.h"
#include "cachesvc/core/misses.h"
#include "cachesvc/core/plan.h"
#include "cachesvc/core/request_ring.h"
#include "cachesvc/core/running_fetch.h"

namespace kv {

class FetchNotes {
 public:
  FetchNotes(Env& env, const Misses& misses, RequestRing& ring)
      : env_(env), misses_(misses), ring_(ring) {}

  /// Fills the record with what the hit serves and why it serves no more: `limit`, in words
  /// `reason`.
  void describe(const RealmState& realm, const Query& query, const Hit& hit, Missing limit,
                const std::string& reason, RequestRecord& record) const;
  /// Puts a record that is described into the ring, with the time since it began. Returns: as
  /// RequestRing::add.
  uint64_t note(Clock::time_point began, RequestRecord& record);
  /// Counts what a fetch is answered with, and notes it.
  void served(RunningFetch& f, const FetchReply& reply);
  /// Counts a prompt of which nothing was served: a lookup's, or one nobody waits for any more.
  void missed(const std::string& ns, const std::string& model, uint64_t tokens);

 private:
  Env& env_;
  const Misses& misses_;
  RequestRing& ring_;
};

}  // namespace kv
