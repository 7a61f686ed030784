// Verbs, each as one exchange on one of the pool's connections.
#include "proto/socket_client.h"

#include "proto/socket_pool.h"

namespace kv {

SocketClient::SocketClient(std::unique_ptr<SocketPool> pool) : pool_(std::move(pool)) {}
SocketClient::~SocketClient() = default;

Result<std::unique_ptr<SocketClient>> SocketClient::connect(const std::string& path,
                                                            const std::string& ns,
                                                            SocketClientOptions options) {
  if (options.max_connections == 0)
    return invalid_argument("max_connections 0, expected at least 1");
  auto pool = std::make_unique<SocketPool>(path, ns, options);
  {
    auto first = pool->acquire(deadline_in(options.connect_timeout));
    if (!first.ok()) return first.status();
  }
  return std::unique_ptr<SocketClient>(new SocketClient(std::move(pool)));
}

BootToken SocketClient::boot_token() const { return pool_->boot_token(); }

namespace {

// Exchanges one request for a reply of one frame.
template <typename Reply, typename Request>
Result<Reply> exchange(const SocketPool::Use& use, FrameType type, FrameType expected,
                       const Request& request, const Until& until) {
  uint64_t id = use->next_request();
  OutFrame out = request_frame(type, id, timeout_ms(until.deadline), request);
  KV_ASSIGN_OR_RETURN(Frame frame, use->call(out, id, expected, until.deadline));
  auto reply = decode_reply<Reply>(expected, frame.body.span());
  if (!reply.ok()) return use->give_up(reply.status());
  return reply;
}

// The same for a request about an open model, whose handle is the client's own.
template <typename Reply, typename Request>
Result<Reply> ask(SocketPool& pool, FrameType type, FrameType expected, Request request,
                  const Until& until) {
  KV_ASSIGN_OR_RETURN(auto use, pool.acquire(until));
  KV_RETURN_IF_ERROR(pool.to_remote(use, request.model, request.profile, until.deadline));
  return exchange<Reply>(use, type, expected, request, until);
}

}  // namespace

Result<OpenReply> SocketClient::open(const OpenRequest& request, const Until& until) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(until));
  KV_ASSIGN_OR_RETURN(OpenReply reply, SocketPool::open_on(use, request, until.deadline));
  reply.model = pool_->remember(use, request, reply);
  return reply;
}

Result<LookupReply> SocketClient::lookup(const QueryRequest& request, const Until& until) {
  return ask<LookupReply>(*pool_, FrameType::lookup, FrameType::lookup_ok, request, until);
}

Result<LookupReply> SocketClient::prefetch(const PrefetchRequest& request, const Until& until) {
  return ask<LookupReply>(*pool_, FrameType::prefetch, FrameType::prefetch_ok, request, until);
}

Result<DemoteReply> SocketClient::demote(const DemoteRequest& request, const Until& until) {
  return ask<DemoteReply>(*pool_, FrameType::demote, FrameType::demote_ok, request, until);
}

Result<RetainReply> SocketClient::retain(const RetainRequest& request, const Until& until) {
  return ask<RetainReply>(*pool_, FrameType::retain, FrameType::retain_ok, request, until);
}

Result<ExpireReply> SocketClient::expire(const ExpireRequest& request, const Until& until) {
  return ask<ExpireReply>(*pool_, FrameType::expire, FrameType::expire_ok, request, until);
}

Result<HoldReply> SocketClient::hold(const HoldRequest& request, const Until& until) {
  return ask<HoldReply>(*pool_, FrameType::hold, FrameType::hold_ok, request, until);
}

Result<std::chrono::milliseconds> SocketClient::renew(uint64_t hold, std::chrono::milliseconds time,
                                                      const Until& until) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(until));
  KV_ASSIGN_OR_RETURN(auto reply, exchange<RenewReply>(use, FrameType::renew, FrameType::renew_ok,
                                                       RenewRequest{hold, time}, until));
  return reply.time;
}

Status SocketClient::release(uint64_t hold, const Until& until) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(until));
  return exchange<Empty>(use, FrameType::release, FrameType::release_ok, ReleaseRequest{hold},
                         until)
      .status();
}

Result<uint64_t> SocketClient::erase_entry(const QueryRequest& request, const Until& until) {
  KV_ASSIGN_OR_RETURN(auto reply, ask<EraseCount>(*pool_, FrameType::erase_entry,
                                                  FrameType::erase_entry_ok, request, until));
  return reply.objects;
}

Result<uint64_t> SocketClient::erase(uint32_t model, const Query& query, const Until& until) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(until));
  uint32_t remote = 0;  // 0: the whole namespace
  if (model != 0) {
    KV_ASSIGN_OR_RETURN(remote, pool_->remote_model(use, model, until.deadline));
  }
  KV_ASSIGN_OR_RETURN(auto reply, exchange<EraseCount>(use, FrameType::erase, FrameType::erase_ok,
                                                       EraseRequest{remote, query}, until));
  return reply.objects;
}

Result<WhyReply> SocketClient::why(const WhyRequest& request, const Until& until) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(until));
  return exchange<WhyReply>(use, FrameType::why, FrameType::why_ok, request, until);
}

Result<StatsReply> SocketClient::stats(const Until& until) {
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(until));
  return exchange<StatsReply>(use, FrameType::stats, FrameType::stats_ok, Empty{}, until);
}

Result<ReserveReply> SocketClient::reserve(const ReserveRequest& request, const Until& until) {
  if (pool_->reservations_full()) {
    return Status(StatusCode::busy, "reservations of this client: at most " +
                                        std::to_string(pool_->options().max_reservations));
  }
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire(until));
  ReserveRequest remote = request;
  KV_ASSIGN_OR_RETURN(remote.model, pool_->remote_model(use, request.model, until.deadline));
  KV_ASSIGN_OR_RETURN(auto reply, exchange<ReserveReply>(use, FrameType::reserve,
                                                         FrameType::reserve_ok, remote, until));
  reply.reservation = pool_->add_reservation(use.get(), reply.reservation);
  return reply;
}

Status SocketClient::put(PutRequest request, const Until& until) {
  std::vector<PutRequest> one;
  one.push_back(std::move(request));
  return put_all(std::move(one), until).front();
}

Result<CommitReply> SocketClient::commit(uint64_t reservation, Durability wait_for,
                                         const Until& until) {
  uint64_t remote = 0;
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire_for(reservation, until, remote));
  auto reply = exchange<CommitReply>(use, FrameType::commit, FrameType::commit_ok,
                                     CommitRequest{remote, wait_for}, until);
  pool_->end_reservation(reservation);
  return reply;
}

Status SocketClient::abort(uint64_t reservation, const Until& until) {
  uint64_t remote = 0;
  KV_ASSIGN_OR_RETURN(auto use, pool_->acquire_for(reservation, until, remote));
  auto reply =
      exchange<Empty>(use, FrameType::abort, FrameType::abort_ok, AbortRequest{remote}, until);
  pool_->end_reservation(reservation);
  return reply.status();
}

Result<FetchReply> SocketClient::fetch(const FetchRequest& request, const Until& until) {
  return std::move(fetch_all({&request, 1}, until).front());
}

}  // namespace kv
