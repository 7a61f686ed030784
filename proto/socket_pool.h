// SocketPool: the connections of a SocketClient, and the reservations and handles bound to them.
//
// A call takes a connection for itself (Use) and gives it back; a broken one is dropped and the
// next call makes another. A reservation names the connection that holds it. Handles of models are
// the client's own, one for a model under one profile: what another profile brings is not decoded
// by who holds it. Each connection has its own for the service. Any thread may call; a child
// process after fork(2) may not: nothing is sent on its parent's connections.
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "proto/socket_client.h"
#include "proto/socket_connection.h"

namespace kv {

/// Time given to the service: a little less than the caller has, so that its answer wins.
uint32_t timeout_ms(Deadline deadline);

class SocketPool {
 public:
  using ConnectionPtr = std::shared_ptr<SocketConnection>;

  SocketPool(std::string path, std::string ns, SocketClientOptions options);
  const SocketClientOptions& options() const { return options_; }
  BootToken boot_token() const;  ///< from the newest connection's service

  /// A connection of the caller's own until this ends.
  class Use {
   public:
    Use(SocketPool& pool, ConnectionPtr c) : pool_(&pool), c_(std::move(c)) {}
    Use(Use&& other) noexcept : pool_(other.pool_), c_(std::move(other.c_)) {}
    Use& operator=(Use&&) = delete;
    ~Use();
    SocketConnection* operator->() const { return c_.get(); }
    const ConnectionPtr& get() const { return c_; }

   private:
    SocketPool* pool_;
    ConnectionPtr c_;
  };

  /// Takes the idle connection with the fewest reservations, unused for longest, whose puts delay
  /// others least; its calls stop with `until`. Returns: deadline_exceeded (all in use), cancelled,
  /// unavailable (after a fork), and what SocketConnection::open returns.
  Result<Use> acquire(const Until& until);
  /// The connection that holds reservation `id`, once it is idle; `remote`: the service's number.
  /// Returns: not_found (ended, or its connection did), deadline_exceeded, cancelled.
  Result<Use> acquire_for(uint64_t id, const Until& until, uint64_t& remote);

  /// True if there is no place for a reservation. Those unused for options().abandoned_after make
  /// room.
  bool reservations_full();
  uint64_t add_reservation(const ConnectionPtr& c, uint64_t remote);
  void end_reservation(uint64_t id);

  static Result<OpenReply> open_on(const Use& use, const OpenRequest& request, Deadline deadline);
  /// The client's handle for a model that was opened on `use`: one per realm.
  uint32_t remember(const Use& use, const OpenRequest& request, const OpenReply& reply);
  /// The model's handle on this connection; opened there first if need be.
  Result<uint32_t> remote_model(const Use& use, uint32_t model, Deadline deadline);
  /// The same of a request's handle, in place; a profile that it does not name is the handle's.
  Status to_remote(const Use& use, uint32_t& model, Id& profile, Deadline deadline);

 private:
  struct Reservation {
    ConnectionPtr connection;
    uint64_t remote = 0;
    std::chrono::steady_clock::time_point used;
  };
  struct OpenedModel {
    OpenRequest again;  ///< the request, with the profile that was in force
    Realm realm;
  };
  Status check_process() const;
  Status wait(std::unique_lock<std::mutex>& lock, const Until& until, const char* what);
  Result<Use> use(ConnectionPtr c, const Until& until);
  std::vector<ConnectionPtr>::iterator least_reserved();
  void release(const ConnectionPtr& c);
  void forget(const ConnectionPtr& c);

  const int process_;  // the process that may call
  const std::string path_;
  const SocketClientOptions options_;
  HelloRequest hello_;  // every connection's; constant
  const std::shared_ptr<ReplyBodies> bodies_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  BootToken boot_{};
  std::vector<ConnectionPtr> idle_;
  uint32_t connections_ = 0;  // idle, in use, or being made
  uint64_t last_reservation_ = 0;
  std::map<uint64_t, Reservation> reservations_;
  std::vector<OpenedModel> models_;  // handle - 1
};

}  // namespace kv
