// TieredCache: the cache in process, behind the blocking, thread-safe Client interface.
//
// Owns a CacheCore with its loop thread and workers, bound to one namespace. Any thread may call;
// the destructor of the last client drains (CacheOptions::drain_timeout) and joins. Leases stay
// valid after it: they own their bytes.
#pragma once

#include <memory>
#include <string>

#include "cachesvc/core/cache_core.h"
#include "proto/client.h"

namespace kv {

class TieredCache final : public Client {
 public:
  /// Opens and recovers the SSD directory before it returns. Returns: as CacheCore::create.
  static Result<std::unique_ptr<TieredCache>> create(CacheOptions options, const std::string& ns);
  ~TieredCache() override;
  TieredCache(const TieredCache&) = delete;  // owns threads
  TieredCache& operator=(const TieredCache&) = delete;

  Result<OpenReply> open(const OpenRequest& request, const Until& until) override;
  Result<LookupReply> lookup(const QueryRequest& request, const Until& until) override;
  Result<ReserveReply> reserve(const ReserveRequest& request, const Until& until) override;
  Status put(PutRequest request, const Until& until) override;
  Result<CommitReply> commit(uint64_t reservation, Durability wait_for,
                             const Until& until) override;
  Status abort(uint64_t reservation, const Until& until) override;
  Result<FetchReply> fetch(const FetchRequest& request, const Until& until) override;
  Result<LookupReply> prefetch(const PrefetchRequest& request, const Until& until) override;
  Result<RetainReply> retain(const RetainRequest& request, const Until& until) override;
  Result<ExpireReply> expire(const ExpireRequest& request, const Until& until) override;
  Result<DemoteReply> demote(const DemoteRequest& request, const Until& until) override;
  Result<HoldReply> hold(const HoldRequest& request, const Until& until) override;
  Result<Milliseconds> renew(uint64_t hold, Milliseconds time, const Until& until) override;
  Status release(uint64_t hold, const Until& until) override;
  Result<uint64_t> erase(uint32_t model, const Query& query, const Until& until) override;
  Result<uint64_t> erase_entry(const QueryRequest& request, const Until& until) override;
  Result<WhyReply> why(const WhyRequest& request, const Until& until) override;
  Result<StatsReply> stats(const Until& until) override;

  /// Writes everything that waits for the SSD. Returns: as CacheCore::drain.
  Status drain(Deadline deadline);
  /// Another client of the same cache, perhaps in another namespace. The cache ends with the last.
  Result<std::unique_ptr<Client>> connect(const std::string& ns);
  /// For tests: CacheCore::check_invariants between two steps of the loop.
  void check_invariants();

 private:
  class Threads;
  TieredCache(std::shared_ptr<Threads> threads, uint64_t session);
  template <typename T, typename Start>
  T call(const Until& until, Start start);
  std::shared_ptr<Threads> threads_;
  uint64_t session_;
};

}  // namespace kv
