// The facade, sessions, and the list of calls under way.
#include "cachesvc/cache_core.h"

#include <algorithm>

#include "cachesvc/cache_core_gate.h"
#include "cachesvc/cache_core_impl.h"

namespace kv {

CacheCore::Impl::Impl(CacheOptions o, boost::asio::any_io_executor loop,
                      boost::asio::any_io_executor workers, boost::asio::any_io_executor disk,
                      std::shared_ptr<RamPool> pool)
    : options_(std::move(o)),
      loop_(std::move(loop)),
      workers_(std::move(workers)),
      disk_(disk ? std::move(disk) : workers_),
      ssd_strand_(boost::asio::make_strand(disk_)),
      pool_(std::move(pool)),
      gate_(std::make_shared<LoopGate>(loop_)),
      budget_(options_.write_bytes_per_second, options_.write_bytes_per_day),
      scrub_pace_(options_.scrub_bytes_per_second, 0) {}

void CacheCore::Impl::close() {
  gate_->close();
  pool_->notify_on_release(nullptr);
  draining_ = true;
  while (!calls_.empty()) {
    auto call = calls_.begin()->second;
    call->fail({StatusCode::unavailable, "the cache is closing"});
  }
  closed_ = true;
  room_waiters_.clear();
  commit_waits_.clear();
  reservations_.clear();
  sync_timer_.reset();
  retry_timer_.reset();
  reconcile_timer_.reset();
  scrub_timer_.reset();
  ssd_watch_.reset();
  budget_timer_.reset();
  after_reconcile_.clear();
  // Its end waits for the device, so it comes where the device's other work is done.
  if (ssd_) boost::asio::post(ssd_strand_, [ssd = std::move(ssd_)] {});
}

Result<uint64_t> CacheCore::Impl::connect(const std::string& ns) {
  if (draining_) return Status(StatusCode::unavailable, "the cache is draining");
  if (ns.empty() || ns.size() > kMaxNamespaceBytes) {
    return invalid_argument("namespace of " + std::to_string(ns.size()) + " bytes outside 1.." +
                            std::to_string(kMaxNamespaceBytes));
  }
  if (sessions_.size() >= options_.max_sessions) {
    ++count_.busy;
    return Status(StatusCode::busy,
                  "max_sessions " + std::to_string(options_.max_sessions) + " reached");
  }
  uint64_t id = next_session_++;
  sessions_[id].ns = ns;
  return id;
}

void CacheCore::Impl::disconnect(uint64_t session) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  std::set<uint64_t> reservations = std::move(it->second.reservations);
  sessions_.erase(it);
  std::vector<std::shared_ptr<CallBase>> waiting;
  for (auto& [key, call] : calls_) {
    if (call->session == session) waiting.push_back(call);
  }
  for (auto& call : waiting) call->fail({StatusCode::unavailable, "the session was closed"});
  for (uint64_t id : reservations) end_reservation(id);
  if (!opening_) release_realms();
}

Result<std::shared_ptr<ModelState>> CacheCore::Impl::model_of(uint64_t session,
                                                              uint32_t handle) {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return Status(StatusCode::not_found, "no such session");
  auto& models = it->second.models;
  if (handle == 0 || handle > models.size()) {
    return invalid_argument("model handle " + std::to_string(handle) + " was not opened");
  }
  return models[handle - 1];
}

void CacheCore::Impl::add_call(uint64_t session, std::shared_ptr<CallBase> call,
                               Deadline deadline) {
  call->session = session;
  if (calls_.size() >= options_.max_waiting_calls) {
    ++count_.busy;
    call->fail({StatusCode::busy, "max_waiting_calls reached"});
    return;
  }
  if (deadline <= Clock::now()) {
    call->fail({StatusCode::deadline_exceeded, "the deadline had passed when the call came"});
    return;
  }
  calls_[call.get()] = call;
  call->on_finish = [this](CallBase* ended) { forget_call(ended); };
  call->timer = std::make_unique<boost::asio::steady_timer>(loop_, deadline);
  call->timer->async_wait([weak = std::weak_ptr<CallBase>(call)](boost::system::error_code error) {
    auto waiting = weak.lock();
    if (!error && waiting) {
      waiting->fail({StatusCode::deadline_exceeded, "the call's deadline passed"});
    }
  });
}

void CacheCore::Impl::forget_call(CallBase* call) {
  calls_.erase(call);
  std::erase_if(after_reconcile_, [&](const auto& waiting) { return waiting.first.get() == call; });
}

std::vector<PinnedName> CacheCore::Impl::pin_all(const std::vector<Record*>& records) {
  std::vector<PinnedName> pins;
  for (Record* r : records) {
    index_.pin(*r);
    pins.push_back({r->name, r->serial});
  }
  return pins;
}

Record* CacheCore::Impl::find_pinned(const PinnedName& pinned) {
  Record* r = index_.find(pinned.name);
  return r && r->serial == pinned.serial ? r : nullptr;
}

Record* CacheCore::Impl::find_usable(const ObjectName& name) {
  Record* r = index_.find(name);
  if (r && !r->realm) return nullptr;  // an orphan on the SSD: it serves nothing
  return r && (r->ram || r->blocked_until <= Clock::now()) ? r : nullptr;
}

void CacheCore::Impl::unpin_all(const std::vector<PinnedName>& pins) {
  for (const auto& p : pins) {
    if (Record* r = find_pinned(p)) index_.unpin(*r);
  }
  if (!room_waiters_.empty()) later([this] { pump_room(); });
}

std::shared_ptr<const void> CacheCore::Impl::lease_hold(std::vector<PinnedName> pins) {
  // Released on whatever thread the lease dies; the pins go on the loop.
  auto release = [gate = gate_, weak = weak_from_this(), pins = std::move(pins)](const void*) {
    gate->post([weak, pins] {
      if (auto self = weak.lock()) self->unpin_all(pins);
    });
  };
  return std::shared_ptr<const void>(static_cast<const void*>(this), std::move(release));
}

Result<std::unique_ptr<CacheCore>> CacheCore::create(CacheOptions options,
                                                     boost::asio::any_io_executor loop,
                                                     boost::asio::any_io_executor workers,
                                                     boost::asio::any_io_executor disk) {
  KV_RETURN_IF_ERROR(validate(options));
  KV_ASSIGN_OR_RETURN(uint64_t budget, ram_budget(options));
  auto staging = static_cast<uint64_t>(static_cast<double>(budget) * options.staging_fraction);
  auto impl = std::make_shared<Impl>(std::move(options), std::move(loop), std::move(workers),
                                     std::move(disk), RamPool::create(budget, staging));
  KV_RETURN_IF_ERROR(impl->open_ssd());
  if (impl->recovery_.unread == 0) impl->later([self = impl.get()] { self->warm_start(); });
  if (impl->ssd_ && impl->options_.scrub_bytes_per_second > 0) impl->scrub_in({});
  return std::unique_ptr<CacheCore>(new CacheCore(std::move(impl)));
}

CacheCore::CacheCore(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
CacheCore::~CacheCore() { impl_->close(); }

Result<uint64_t> CacheCore::connect(const std::string& ns) { return impl_->connect(ns); }
void CacheCore::disconnect(uint64_t session) { impl_->disconnect(session); }
void CacheCore::open(uint64_t session, OpenRequest request, Deadline deadline,
                     Done<Result<OpenReply>> done) {
  impl_->open(session, std::move(request), deadline, std::move(done));
}
void CacheCore::lookup(uint64_t session, uint32_t model, Query query, Deadline deadline,
                       Done<Result<LookupReply>> done) {
  impl_->lookup(session, model, std::move(query), false, deadline, std::move(done));
}
void CacheCore::reserve(uint64_t session, ReserveRequest request, Deadline deadline,
                        Done<Result<ReserveReply>> done) {
  impl_->reserve(session, std::move(request), deadline, std::move(done));
}
void CacheCore::put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room,
                    Deadline deadline, Done<Status> done) {
  impl_->put(session, std::move(request), std::move(room), deadline, std::move(done));
}
void CacheCore::commit(uint64_t session, uint64_t reservation, Durability wait_for,
                       Deadline deadline, Done<Result<CommitReply>> done) {
  impl_->commit(session, reservation, wait_for, deadline, std::move(done));
}
void CacheCore::abort(uint64_t session, uint64_t reservation, Deadline deadline,
                      Done<Status> done) {
  impl_->abort(session, reservation, deadline, std::move(done));
}
void CacheCore::fetch(uint64_t session, FetchRequest request, Deadline deadline,
                      Done<Result<FetchReply>> done) {
  impl_->fetch(session, std::move(request), deadline, std::move(done));
}
void CacheCore::prefetch(uint64_t session, uint32_t model, Query query, Deadline deadline,
                         Done<Result<LookupReply>> done) {
  impl_->lookup(session, model, std::move(query), true, deadline, std::move(done));
}
void CacheCore::erase(uint64_t session, uint32_t model, Query query, Deadline deadline,
                      Done<Result<uint64_t>> done) {
  impl_->erase(session, model, std::move(query), deadline, std::move(done));
}
void CacheCore::stats(uint64_t session, Deadline deadline, Done<Result<StatsReply>> done) {
  impl_->stats(session, deadline, std::move(done));
}

void CacheCore::allocate_staging(uint64_t session, uint64_t bytes, StagingFor what,
                                 Deadline deadline, Done<Result<Staging>> done) {
  auto call = impl_->begin<Result<Staging>>(session, deadline, std::move(done));
  if (call->finished()) return;
  auto pool = impl_->pool_;
  uint64_t body = RamPool::slab_bytes(bytes), limit = pool->staging_limit_bytes();
  Room room;
  room.staging = 2 * body;
  if (what == StagingFor::put) {
    // Codes are smaller than what they are made of; rows copied from elsewhere are reserved for.
    room.staging = std::max(body, std::min(2 * body, limit));
    room.index = ObjectIndex::index_bytes(kMaxBlockTokens);
    uint64_t rest = pool->budget_bytes() - std::min(pool->budget_bytes(), room.total());
    room.stored = std::min(body, rest);
  }
  impl_->with_room(room, deadline, [call, pool, bytes](Result<std::shared_ptr<RoomCharges>> got) {
    if (call->finished()) return;
    if (!got.ok()) return call->fail(got.status());
    call->finish(Staging{pool->allocate(bytes, (*got)->staging), *got});
  });
}

void CacheCore::drain(Deadline deadline, Done<Status> done) {
  impl_->drain(deadline, std::move(done));
}
const std::shared_ptr<RamPool>& CacheCore::pool() const { return impl_->pool_; }
const CacheOptions& CacheCore::options() const { return impl_->options_; }

}  // namespace kv
