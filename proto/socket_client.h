// SocketClient: the Client interface over the service's Unix socket (PROTOCOL.md).
//
// A small pool of connections, one call at a time on each; a store's calls stay on the connection
// that reserved it. A connection that fails is dropped and the next call makes another: models are
// opened there again, reservations of the lost one are gone (not_found). Nothing is retried. Planes
// of a fetch lie in the service's segments, mapped read-only and unchanged while the lease is
// valid(); those of objects that are in none, or all if map_segments is false, in one received
// buffer per object. An ended lease is given back with the next call on its connection. Any thread
// may call.
#pragma once

#include <memory>
#include <string>

#include "proto/client.h"
#include "proto/message.h"
#include "proto/own_memory.h"

namespace kv {

class SocketPool;

struct SocketClientOptions {
  std::chrono::milliseconds connect_timeout{
      5'000};                    ///< connect and hello, within the call's deadline
  uint32_t max_connections = 4;  ///< limit, at least 1; calls beyond wait
  uint32_t max_reservations = 256;
  /// Idle time after which a reservation makes room for another when there are that many; services
  /// end them sooner (after 2 minutes).
  std::chrono::seconds abandoned_after{180};
  uint64_t max_reply_bytes = 16ull << 30;  ///< limit of one fetch; more is resource_exhausted
  bool map_segments = true;                ///< false: every fetch is streamed
  /// Rows of puts that lie here whole are read by the service, not sent. Null: all are sent.
  std::shared_ptr<OwnMemory> memory;
  uint64_t recycle_bytes = 256ull << 20;        ///< memory of ended leases kept for later replies
  std::string program = "cachesvc-client 0.1";  ///< name for the service's log
  std::string token;                            ///< the namespace's, where one is asked for
};

class SocketClient final : public Client {
 public:
  /// Makes the first connection. Returns: unavailable (nobody listens), invalid_argument
  /// (namespace, path), busy (too many connections), denied (another's namespace),
  /// deadline_exceeded (connect_timeout).
  static Result<std::unique_ptr<SocketClient>> connect(const std::string& path,
                                                       const std::string& ns,
                                                       SocketClientOptions options);
  ~SocketClient() override;
  SocketClient(const SocketClient&) = delete;  // owns connections
  SocketClient& operator=(const SocketClient&) = delete;

  /// The boot token of the service that the newest connection is to: another one than before means
  /// that it was started anew. Models are opened again by themselves, reservations are gone.
  BootToken boot_token() const;

  // Errors are those of Client, and unavailable where the service can't be reached.
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
  Result<std::chrono::milliseconds> renew(uint64_t hold, std::chrono::milliseconds time,
                                          const Until& until) override;
  Status release(uint64_t hold, const Until& until) override;
  Result<uint64_t> erase(uint32_t model, const Query& query, const Until& until) override;
  Result<uint64_t> erase_entry(const QueryRequest& request, const Until& until) override;
  Result<WhyReply> why(const WhyRequest& request, const Until& until) override;
  Result<StatsReply> stats(const Until& until) override;
  // Requests of a batch follow each other on one connection without waiting for answers.
  std::vector<Result<LookupReply>> lookup_all(std::span<const QueryRequest> requests,
                                              const Until& until) override;
  std::vector<Result<FetchReply>> fetch_all(std::span<const FetchRequest> requests,
                                            const Until& until) override;
  std::vector<Status> put_all(std::vector<PutRequest> requests, const Until& until) override;

 private:
  explicit SocketClient(std::unique_ptr<SocketPool> pool);
  std::unique_ptr<SocketPool> pool_;
};

}  // namespace kv
