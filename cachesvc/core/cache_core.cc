// The facade, sessions, and the list of calls under way.
#include "cachesvc/core/cache_core.h"

#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

constexpr size_t kTouchedBytes = 4096;  // a page, or less

// Worker. The system takes milliseconds for memory that nobody has touched before.
void touch_pages(PoolBuffer& buffer) {
  for (size_t at = 0; at < buffer.size(); at += kTouchedBytes) buffer.data()[at] = 0;
}

}  // namespace

CacheCore::Impl::Impl(CacheOptions o, boost::asio::any_io_executor loop,
                      boost::asio::any_io_executor workers, boost::asio::any_io_executor disk,
                      std::shared_ptr<RamPool> pool)
    : options_(std::move(o)),
      loop_(std::move(loop)),
      workers_(std::move(workers)),
      disk_(disk ? std::move(disk) : workers_),
      ssd_lane_(std::make_shared<Lane>(disk_)),
      pool_(std::move(pool)),
      gate_(std::make_shared<LoopGate>(loop_)),
      budget_(options_.write_bytes_per_second, options_.write_bytes_per_day),
      scrub_pace_(options_.scrub_bytes_per_second, 0) {}

// What must be there before the first handler: waking it must not fail.
void CacheCore::Impl::start() {
  auto wake = [this](auto handler) {
    return std::make_shared<Wake>(gate_, [weak = weak_from_this(), handler] {
      if (auto self = weak.lock(); self && !self->closed_) ((*self).*handler)();
    });
  };
  room_wake_ = wake(&Impl::pump_room);
  open_wake_ = wake(&Impl::next_open);
  spill_wake_ = wake(&Impl::go_on_spilling);
  spill_timer_ = std::make_unique<boost::asio::steady_timer>(loop_);
  pool_->on_release([wake = room_wake_] { wake->ask(); });
}

void CacheCore::Impl::close() noexcept {
  gate_->close();
  pool_->on_release(nullptr);
  draining_ = true;
  while (!calls_.empty()) {
    auto first = calls_.begin();
    auto call = first->second.lock();
    if (call)
      call->fail(StatusCode::unavailable, "the cache is closing");
    else
      calls_.erase(first);
  }
  closed_ = true;
  room_waiters_.clear();
  commit_waits_.clear();
  reservations_.clear();
  sync_timer_.reset();
  spill_timer_.reset();
  retry_timer_.reset();
  reconcile_timer_.reset();
  scrub_timer_.reset();
  ssd_watch_.reset();
  budget_timer_.reset();
  after_reconcile_.clear();
  after_erase_.clear();
  end_erases();
  // Its end waits for the device, so it comes where the device's other work is done.
  ssd_.reset();
  if (ssd_end_) ssd_lane_->submit_behind(std::move(ssd_end_));
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
  SessionState state;
  state.ns = ns;
  uint64_t id = next_session_++;
  sessions_.emplace(id, std::move(state));
  return id;
}

void CacheCore::Impl::disconnect(uint64_t session) noexcept {
  auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  std::set<uint64_t> reservations = std::move(it->second.reservations);
  sessions_.erase(it);
  // Whatever a callback does to the list, the search goes on behind the call that it was told of.
  for (auto at = calls_.begin(); at != calls_.end();) {
    CallBase* key = at->first;
    auto call = at->second.lock();
    if (call && call->session == session) {
      call->fail(StatusCode::unavailable, "the session was closed");
      at = calls_.upper_bound(key);
    } else {
      ++at;
    }
  }
  for (uint64_t id : reservations) end_reservation(id);
  rest_models();
}

Result<std::shared_ptr<ModelState>> CacheCore::Impl::model_of(uint64_t session, uint32_t handle) {
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
  call->timer = std::make_unique<boost::asio::steady_timer>(loop_, deadline);
  call->timer->async_wait([weak = std::weak_ptr<CallBase>(call)](boost::system::error_code error) {
    auto waiting = weak.lock();
    if (!error && waiting) {
      waiting->fail(StatusCode::deadline_exceeded, "the call's deadline passed");
    }
  });
  if (recovery_.unread > 0) reconcile();  // should it have stopped
  if (scrub_stopped_) scrub_in({});
  calls_[call.get()] = call;
  call->on_finish = [this](CallBase* ended) { forget_call(ended); };
}

void CacheCore::Impl::forget_call(CallBase* call) {
  calls_.erase(call);
  std::erase_if(after_reconcile_, [&](const auto& waiting) { return waiting.first.get() == call; });
}

Pins CacheCore::Impl::pin_all(const std::vector<Record*>& records) {
  Pins pins(weak_from_this());
  pins.names_.reserve(records.size());
  for (Record* r : records) {
    index_.pin(*r);
    pins.names_.push_back({r->name, r->serial});
  }
  return pins;
}

void CacheCore::Impl::pin_too(Pins& pins, Record& record) {
  if (pins.core_.expired()) pins.core_ = weak_from_this();
  pins.names_.push_back({record.name, record.serial});
  index_.pin(record);
}

Record* CacheCore::Impl::find_pinned(const PinnedName& pinned) {
  Record* r = index_.find(pinned.name);
  return r && r->serial == pinned.serial ? r : nullptr;
}

Record* CacheCore::Impl::find_usable(const ObjectName& name) {
  Record* r = index_.find(name);
  if (r && !r->realm) return nullptr;  // an orphan on the SSD: it serves nothing
  return r && r->usable(kUnreadableIsMissing) ? r : nullptr;
}

void Pins::release() noexcept {
  if (auto core = core_.lock(); core && !names_.empty()) core->release_pins(names_);
  names_.clear();
}

Pins& Pins::operator=(Pins&& other) noexcept {
  if (this == &other) return *this;
  release();
  core_ = std::move(other.core_);
  names_ = std::exchange(other.names_, {});
  return *this;
}

void CacheCore::Impl::release_pins(const std::vector<PinnedName>& pins) noexcept {
  for (const auto& p : pins) {
    if (Record* r = find_pinned(p)) index_.unpin(*r);
  }
  if (!room_waiters_.empty()) room_wake_->ask();
}

std::shared_ptr<const void> CacheCore::Impl::lease_hold(Pins pins) {
  // Released on whatever thread the lease dies; the pins go on the loop.
  struct Held {
    std::shared_ptr<LoopGate> gate;
    Pins pins;
    PostMemory memory;
  };
  auto held = std::make_shared<Held>();
  held->gate = gate_;
  held->pins = std::move(pins);
  auto release = [held](const void*) {
    if (!held->gate->post(held->memory, [held] { held->pins.release(); })) held->pins.forget();
  };
  return std::shared_ptr<const void>(held.get(), std::move(release));
}

std::shared_ptr<const Lease> CacheCore::share(Lease lease) {
  struct Shared {
    Lease lease;
    boost::asio::any_io_executor workers;
    PostMemory memory;
  };
  auto shared = std::make_shared<Shared>();
  shared->lease = std::move(lease);
  shared->workers = impl_->workers_;
  auto free = [shared](const Lease*) {
    post_surely(shared->workers, shared->memory, [shared] { shared->lease = Lease(); });
  };
  return std::shared_ptr<const Lease>(&shared->lease, std::move(free));
}

void CacheCore::Impl::allocate_staging(uint64_t session, uint64_t bytes, StagingFor what,
                                       Deadline deadline, Done<Result<Staging>> done) {
  auto call = begin<Result<Staging>>(session, deadline, std::move(done));
  if (call->finished()) return;
  uint64_t body = RamPool::slab_bytes(bytes), limit = pool_->staging_limit_bytes();
  Room room;
  room.staging = 2 * body;
  if (what == StagingFor::put) {
    // Codes are smaller than what they are made of; rows copied from elsewhere are reserved for.
    room.staging = std::max(body, std::min(2 * body, limit));
    room.index = ObjectIndex::most_index_bytes(kMaxBlockTokens);
    uint64_t rest = pool_->budget_bytes() - std::min(pool_->budget_bytes(), room.total());
    room.stored = std::min(body, rest);
  }
  with_room(room, deadline, [this, call, bytes](Result<std::shared_ptr<RoomCharges>> got) {
    if (call->finished()) return;
    if (!got.ok()) return call->fail(got.status());
    on_worker(
        [pool = pool_, charges = *got, bytes]() -> Result<Staging> {
          Staging staging{pool->allocate(bytes, charges->staging), charges};
          touch_pages(staging.body);
          return staging;
        },
        [this, call](Result<Staging> staging) {
          if (call->finished()) return free_on(workers_, std::move(staging));
          call->finish(std::move(staging));
        });
  });
}

std::shared_ptr<const void> CacheCore::reply_room(uint64_t bytes) {
  Room room;
  room.reply = bytes;
  return impl_->room_now(room);
}
std::shared_ptr<const void> CacheCore::session_room(uint64_t bytes) {
  Room room;
  room.session = bytes;
  return impl_->room_now(room);
}

Result<std::unique_ptr<CacheCore>> CacheCore::create(CacheOptions options,
                                                     boost::asio::any_io_executor loop,
                                                     boost::asio::any_io_executor workers,
                                                     boost::asio::any_io_executor disk) {
  try {
    return make(std::move(options), std::move(loop), std::move(workers), std::move(disk));
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

Result<std::unique_ptr<CacheCore>> CacheCore::make(CacheOptions options,
                                                   boost::asio::any_io_executor loop,
                                                   boost::asio::any_io_executor workers,
                                                   boost::asio::any_io_executor disk) {
  KV_RETURN_IF_ERROR(validate(options));
  KV_ASSIGN_OR_RETURN(uint64_t budget, ram_budget(options));
  auto staging = static_cast<uint64_t>(static_cast<double>(budget) * options.staging_fraction);
  auto impl = std::make_shared<Impl>(std::move(options), std::move(loop), std::move(workers),
                                     std::move(disk), RamPool::create(budget, staging));
  impl->start();
  KV_RETURN_IF_ERROR(impl->open_ssd());
  impl->later([self = impl.get()] { self->keep_ready(); });
  if (impl->recovery_.unread == 0) impl->later([self = impl.get()] { self->warm_start(); });
  if (impl->ssd_ && impl->options_.scrub_bytes_per_second > 0) impl->scrub_in({});
  return std::unique_ptr<CacheCore>(new CacheCore(std::move(impl)));
}

CacheCore::CacheCore(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
CacheCore::~CacheCore() { impl_->close(); }

// Each verb's end without memory: its callback has run by then (Call).
Result<uint64_t> CacheCore::connect(const std::string& ns) {
  Result<uint64_t> session = out_of_memory();
  (void)if_memory([&] { session = impl_->connect(ns); });
  return session;
}
void CacheCore::disconnect(uint64_t session) { impl_->disconnect(session); }
void CacheCore::open(uint64_t session, OpenRequest request, Deadline deadline,
                     Done<Result<OpenReply>> done) {
  (void)if_memory([&] { impl_->open(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::lookup(uint64_t session, uint32_t model, Query query, Deadline deadline,
                       Done<Result<LookupReply>> done) {
  (void)if_memory(
      [&] { impl_->lookup(session, model, std::move(query), false, deadline, std::move(done)); });
}
void CacheCore::reserve(uint64_t session, ReserveRequest request, Deadline deadline,
                        Done<Result<ReserveReply>> done) {
  (void)if_memory([&] { impl_->reserve(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room,
                    Deadline deadline, Done<Status> done) {
  (void)if_memory(
      [&] { impl_->put(session, std::move(request), std::move(room), deadline, std::move(done)); });
}
void CacheCore::commit(uint64_t session, uint64_t reservation, Durability wait_for,
                       Deadline deadline, Done<Result<CommitReply>> done) {
  (void)if_memory(
      [&] { impl_->commit(session, reservation, wait_for, deadline, std::move(done)); });
}
void CacheCore::abort(uint64_t session, uint64_t reservation, Deadline deadline,
                      Done<Status> done) {
  (void)if_memory([&] { impl_->abort(session, reservation, deadline, std::move(done)); });
}
void CacheCore::fetch(uint64_t session, FetchRequest request, Deadline deadline,
                      Done<Result<FetchReply>> done) {
  (void)if_memory([&] { impl_->fetch(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::prefetch(uint64_t session, uint32_t model, Query query, Deadline deadline,
                         Done<Result<LookupReply>> done) {
  (void)if_memory(
      [&] { impl_->lookup(session, model, std::move(query), true, deadline, std::move(done)); });
}
void CacheCore::erase(uint64_t session, uint32_t model, Query query, Deadline deadline,
                      Done<Result<uint64_t>> done) {
  (void)if_memory(
      [&] { impl_->erase(session, model, std::move(query), deadline, std::move(done)); });
}
void CacheCore::erase_entry(uint64_t session, uint32_t model, Query query, Deadline deadline,
                            Done<Result<uint64_t>> done) {
  (void)if_memory(
      [&] { impl_->erase_entry(session, model, std::move(query), deadline, std::move(done)); });
}
void CacheCore::stats(uint64_t session, Deadline deadline, Done<Result<StatsReply>> done) {
  (void)if_memory([&] { impl_->stats(session, deadline, std::move(done)); });
}

void CacheCore::allocate_staging(uint64_t session, uint64_t bytes, StagingFor what,
                                 Deadline deadline, Done<Result<Staging>> done) {
  (void)if_memory(
      [&] { impl_->allocate_staging(session, bytes, what, deadline, std::move(done)); });
}
void CacheCore::drain(Deadline deadline, Done<Status> done) {
  (void)if_memory([&] { impl_->drain(deadline, std::move(done)); });
}
void CacheCore::check_invariants() const { impl_->check_invariants(); }
const std::shared_ptr<RamPool>& CacheCore::pool() const { return impl_->pool_; }
const CacheOptions& CacheCore::options() const { return impl_->options_; }

}  // namespace kv
