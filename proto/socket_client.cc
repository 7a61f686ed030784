// The pool behind SocketClient, and each verb as one exchange on one of its connections.
#include "proto/socket_client.h"

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>

#include "proto/socket_connection.h"

namespace kv {
namespace {

using ConnectionPtr = std::shared_ptr<SocketConnection>;

// What the service gets to answer: a little less than the caller has, so that its answer wins.
uint32_t timeout_ms(Deadline deadline) {
  using std::chrono::milliseconds;
  auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  int64_t ms = std::clamp<int64_t>(left.count(), 1, 24 * 3600 * 1000);
  return static_cast<uint32_t>(ms - std::min<int64_t>(ms / 10, 100));
}

Status unknown_model(uint32_t model) {
  return invalid_argument("model handle " + std::to_string(model) + " was not opened here");
}

}  // namespace

class SocketClient::Pool {
 public:
  Pool(std::string path, std::string ns, SocketClientOptions options)
      : path_(std::move(path)), ns_(std::move(ns)), options_(std::move(options)) {}

  const SocketClientOptions& options() const { return options_; }

  // A connection of the caller's own until the Use ends.
  class Use {
   public:
    Use(Pool& pool, ConnectionPtr c) : pool_(&pool), c_(std::move(c)) {}
    Use(Use&& other) noexcept : pool_(other.pool_), c_(std::move(other.c_)) {}
    Use& operator=(Use&&) = delete;
    ~Use() {
      if (c_) pool_->release(c_);
    }
    SocketConnection* operator->() const { return c_.get(); }
    const ConnectionPtr& get() const { return c_; }

   private:
    Pool* pool_;
    ConnectionPtr c_;
  };

  Result<Use> acquire(Deadline deadline) {
    std::unique_lock lock(mutex_);
    while (true) {
      while (!idle_.empty()) {
        ConnectionPtr c = idle_.back();
        idle_.pop_back();
        if (!c->stale()) return Use(*this, c);
        forget(c);
      }
      if (connections_ < options_.max_connections) break;
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
        return Status(StatusCode::deadline_exceeded, "every connection is in use");
      }
    }
    ++connections_;
    lock.unlock();
    auto c = SocketConnection::open(path_, ns_, options_.program,
                                    std::min(deadline, deadline_in(options_.connect_timeout)));
    if (c.ok()) return Use(*this, *c);
    lock.lock();
    --connections_;
    changed_.notify_all();
    return c.status();
  }

  struct Reservation {
    ConnectionPtr connection;
    uint64_t remote = 0;
  };
  uint64_t add_reservation(const ConnectionPtr& c, uint64_t remote) {
    std::lock_guard lock(mutex_);
    reservations_[++last_reservation_] = {c, remote};
    return last_reservation_;
  }
  bool reservations_full() {
    std::lock_guard lock(mutex_);
    return reservations_.size() >= options_.max_reservations;
  }
  void end_reservation(uint64_t id) {
    std::lock_guard lock(mutex_);
    reservations_.erase(id);
  }
  // The connection that holds reservation `id`, once it is idle. `remote`: the service's number.
  Result<Use> acquire_for(uint64_t id, Deadline deadline, uint64_t& remote) {
    std::unique_lock lock(mutex_);
    while (true) {
      auto it = reservations_.find(id);
      if (it == reservations_.end()) {
        return Status(StatusCode::not_found, "reservation " + std::to_string(id) +
                                                 " is not there, or went with its connection");
      }
      remote = it->second.remote;
      auto idle = std::find(idle_.begin(), idle_.end(), it->second.connection);
      if (idle != idle_.end()) {
        ConnectionPtr c = *idle;
        idle_.erase(idle);
        return Use(*this, c);
      }
      if (changed_.wait_until(lock, deadline) == std::cv_status::timeout) {
        return Status(StatusCode::deadline_exceeded, "the reservation's connection is in use");
      }
    }
  }

  // The model's handle on this connection; opened there first if need be.
  Result<uint32_t> remote_model(const Use& use, uint32_t model, Deadline deadline) {
    auto known = use->models.find(model);
    if (known != use->models.end()) return known->second;
    OpenRequest request;
    {
      std::lock_guard lock(mutex_);
      if (model == 0 || model > models_.size()) return unknown_model(model);
      request = models_[model - 1];
    }
    KV_ASSIGN_OR_RETURN(OpenReply reply, open_on(use, request, deadline));
    use->models[model] = reply.model;
    return reply.model;
  }

  static Result<OpenReply> open_on(const Use& use, const OpenRequest& request, Deadline deadline) {
    uint64_t id = use->next_request();
    OutFrame out = request_frame(FrameType::open, id, timeout_ms(deadline), request);
    KV_ASSIGN_OR_RETURN(Frame frame, use->call(out, id, FrameType::open_ok, deadline));
    auto reply = decode_reply<OpenReply>(FrameType::open_ok, frame.body.span());
    if (!reply.ok()) return use->give_up(reply.status());
    return reply;
  }

  // The client's handle for a model that was opened on `use`: one per fingerprint.
  uint32_t remember(const Use& use, const OpenRequest& request, const OpenReply& reply) {
    OpenRequest again{request.model, reply.profile, false, request.prefill};
    std::lock_guard lock(mutex_);
    auto it = std::find_if(models_.begin(), models_.end(), [&](const OpenRequest& r) {
      return r.model.fingerprint == request.model.fingerprint;
    });
    if (it == models_.end()) {
      models_.push_back(again);
      it = models_.end() - 1;
    } else {
      *it = again;
    }
    uint32_t model = static_cast<uint32_t>(it - models_.begin()) + 1;
    use->models[model] = reply.model;
    return model;
  }

 private:
  void release(const ConnectionPtr& c) {
    std::lock_guard lock(mutex_);
    if (c->broken()) {
      forget(c);
    } else {
      idle_.push_back(c);
    }
    changed_.notify_all();
  }
  // With mutex_ held: the connection and its reservations are gone.
  void forget(const ConnectionPtr& c) {
    --connections_;
    std::erase_if(reservations_, [&](const auto& r) { return r.second.connection == c; });
  }

  const std::string path_, ns_;
  const SocketClientOptions options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<ConnectionPtr> idle_;
  uint32_t connections_ = 0;  // idle, in use, or being made
  uint64_t last_reservation_ = 0;
  std::map<uint64_t, Reservation> reservations_;
  std::vector<OpenRequest> models_;  // handle - 1
};

SocketClient::SocketClient(std::unique_ptr<Pool> pool) : pool_(std::move(pool)) {}
SocketClient::~SocketClient() = default;

Result<std::unique_ptr<SocketClient>> SocketClient::connect(const std::string& path,
                                                            const std::string& ns,
                                                            SocketClientOptions options) {
  if (options.max_connections == 0) return invalid_argument("max_connections 0, expected at least 1");
  auto pool = std::make_unique<Pool>(path, ns, options);
  {
    auto first = pool->acquire(deadline_in(options.connect_timeout));
    if (!first.ok()) return first.status();
  }
  return std::unique_ptr<SocketClient>(new SocketClient(std::move(pool)));
}

namespace {

// One exchange whose reply is one frame.
template <typename Reply, typename Use, typename Request>
Result<Reply> exchange(const Use& use, FrameType type, FrameType expected, const Request& request,
                       Deadline deadline) {
  uint64_t id = use->next_request();
  OutFrame out = request_frame(type, id, timeout_ms(deadline), request);
  KV_ASSIGN_OR_RETURN(Frame frame, use->call(out, id, expected, deadline));
  auto reply = decode_reply<Reply>(expected, frame.body.span());
  if (!reply.ok()) return use->give_up(reply.status());
  return reply;
}

// The frames after a fetch_header, as a prefix.
template <typename Use>
Result<Prefix> receive_objects(const Use& use, uint64_t id, const FetchHeader& header,
                               Deadline deadline) {
  Prefix prefix{header.tokens, {}};
  uint64_t bytes = 0;
  for (uint32_t i = 0; i < header.objects; ++i) {
    KV_ASSIGN_OR_RETURN(Frame frame, use->receive(id, deadline));
    bytes += frame.header.length;
    if (frame.header.type != FrameType::fetch_object || bytes > header.object_bytes) {
      return use->give_up(corruption("fetch: object frames differ from their header"));
    }
    auto object = decode_fetch_object(frame.body);
    if (!object.ok()) return use->give_up(object.status());
    prefix.objects.push_back(std::move(*object));
  }
  KV_ASSIGN_OR_RETURN(Frame last, use->receive(id, deadline));
  auto done = decode_reply<FetchDone>(FrameType::fetch_done, last.body.span());
  if (last.header.type != FrameType::fetch_done || !done.ok() || done->objects != header.objects) {
    return use->give_up(corruption("fetch: expected fetch_done after its objects"));
  }
  return prefix;
}

}  // namespace

Result<OpenReply> SocketClient::open(const OpenRequest& request, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(deadline));
  KV_ASSIGN_OR_RETURN(OpenReply reply, Pool::open_on(use, request, deadline));
  reply.model = pool_->remember(use, request, reply);
  return reply;
}

Result<LookupReply> SocketClient::lookup(uint32_t model, const Query& query, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(deadline));
  KV_ASSIGN_OR_RETURN(uint32_t remote, pool_->remote_model(use, model, deadline));
  return exchange<LookupReply>(use, FrameType::lookup, FrameType::lookup_ok,
                               QueryRequest{remote, query}, deadline);
}

Result<LookupReply> SocketClient::prefetch(uint32_t model, const Query& query, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(deadline));
  KV_ASSIGN_OR_RETURN(uint32_t remote, pool_->remote_model(use, model, deadline));
  return exchange<LookupReply>(use, FrameType::prefetch, FrameType::prefetch_ok,
                               QueryRequest{remote, query}, deadline);
}

Result<uint64_t> SocketClient::erase(uint32_t model, const Query& query, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(deadline));
  KV_ASSIGN_OR_RETURN(uint32_t remote, pool_->remote_model(use, model, deadline));
  KV_ASSIGN_OR_RETURN(auto reply, exchange<EraseCount>(use, FrameType::erase, FrameType::erase_ok,
                                                       QueryRequest{remote, query}, deadline));
  return reply.objects;
}

Result<StatsReply> SocketClient::stats(Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(deadline));
  return exchange<StatsReply>(use, FrameType::stats, FrameType::stats_ok, Empty{}, deadline);
}

Result<ReserveReply> SocketClient::reserve(const ReserveRequest& request, Deadline deadline) {
  if (pool_->reservations_full()) {
    return Status(StatusCode::busy, "reservations of this client: at most " +
                                        std::to_string(pool_->options().max_reservations));
  }
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(deadline));
  ReserveRequest remote = request;
  KV_ASSIGN_OR_RETURN(remote.model, pool_->remote_model(use, request.model, deadline));
  KV_ASSIGN_OR_RETURN(auto reply, exchange<ReserveReply>(use, FrameType::reserve,
                                                         FrameType::reserve_ok, remote, deadline));
  reply.reservation = pool_->add_reservation(use.get(), reply.reservation);
  return reply;
}

Status SocketClient::put(PutRequest request, Deadline deadline) {
  uint64_t remote = 0;
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire_for(request.reservation, deadline, remote));
  request.reservation = remote;
  uint64_t id = use->next_request();
  OutFrame out = put_frame(id, timeout_ms(deadline), request);
  uint64_t body = out.bytes() - kFrameHeaderBytes;
  if (body > use->hello().max_put_bytes) {
    return {StatusCode::resource_exhausted,
            "put: " + std::to_string(body) + " bytes, the service takes at most " +
                std::to_string(use->hello().max_put_bytes)};
  }
  return use->call(out, id, FrameType::put_ok, deadline).status();
}

Result<CommitReply> SocketClient::commit(uint64_t reservation, Durability wait_for,
                                         Deadline deadline) {
  uint64_t remote = 0;
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire_for(reservation, deadline, remote));
  auto reply = exchange<CommitReply>(use, FrameType::commit, FrameType::commit_ok,
                                     CommitRequest{remote, wait_for}, deadline);
  pool_->end_reservation(reservation);
  return reply;
}

Status SocketClient::abort(uint64_t reservation, Deadline deadline) {
  uint64_t remote = 0;
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire_for(reservation, deadline, remote));
  auto reply = exchange<Empty>(use, FrameType::abort, FrameType::abort_ok, AbortRequest{remote},
                               deadline);
  pool_->end_reservation(reservation);
  return reply.status();
}

Result<FetchReply> SocketClient::fetch(const FetchRequest& request, Deadline deadline) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(deadline));
  FetchCall call{request, pool_->options().max_reply_bytes};
  KV_ASSIGN_OR_RETURN(call.request.model, pool_->remote_model(use, request.model, deadline));
  uint64_t id = use->next_request();
  OutFrame out = request_frame(FrameType::fetch, id, timeout_ms(deadline), call);
  KV_ASSIGN_OR_RETURN(Frame frame, use->call(out, id, FrameType::fetch_header, deadline));
  auto header = decode_reply<FetchHeader>(FrameType::fetch_header, frame.body.span());
  if (!header.ok()) return use->give_up(header.status());
  if (header->object_bytes > pool_->options().max_reply_bytes) {
    return use->give_up({StatusCode::resource_exhausted,
                         "fetch: " + std::to_string(header->object_bytes) +
                             " bytes, max_reply_bytes is " +
                             std::to_string(pool_->options().max_reply_bytes)});
  }
  KV_ASSIGN_OR_RETURN(Prefix prefix, receive_objects(use, id, *header, deadline));
  return FetchReply{header->tokens, header->common,  header->pending,
                    header->tier,   header->form,    std::move(header->reason),
                    Lease(std::move(prefix), nullptr)};
}

}  // namespace kv
