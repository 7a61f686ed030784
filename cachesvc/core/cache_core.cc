// The verbs, each a step of the loop.
#include "cachesvc/core/cache_core.h"

#include "cachesvc/core/index_bytes.h"
#include "cachesvc/core/owners.h"

namespace kv {
namespace {

constexpr size_t kTouchedBytes = 4096;  // a page, or less

// Runs on a worker: the system takes milliseconds for memory that nobody has touched before.
void touch_pages(PoolBuffer& buffer) {
  for (size_t at = 0; at < buffer.size(); at += kTouchedBytes) buffer.data()[at] = 0;
}

// Longest wait of a reply for room for the memory of segments; then it is streamed.
constexpr Milliseconds kAnnounceWait{100};

constexpr uint64_t kMappedShare = 2;  // of a namespace's RAM at most half may be mapped

// Bytes of segments that are announced for whoever shares RAM with `ns`.
uint64_t announced_beside(const Namespaces& namespaces, const SegmentStore& segments,
                          const std::string& ns) {
  const bool common = namespaces.quota(ns).ram_bytes == 0;
  return segments.announced_bytes([&](const std::string& owner) {
    return owner == ns || (common && namespaces.quota(owner).ram_bytes == 0);
  });
}

// Worker.
std::vector<std::shared_ptr<const SegmentView>> announce_all(
    const Env& env, const std::string& ns, uint64_t limit, const std::vector<uint32_t>& segments) {
  const RamPool& pool = *env.pool;
  std::vector<std::shared_ptr<const SegmentView>> views;
  for (uint32_t id : segments) {
    const uint64_t more = pool.segments()->bytes_once_announced(id);
    if (!pool.may_announce(id)) continue;
    if (more > 0 && announced_beside(env.namespaces, *pool.segments(), ns) + more > limit) continue;
    if (auto view = pool.segments()->announce(id)) views.push_back(std::move(view));
  }
  return views;
}

}  // namespace

Result<std::unique_ptr<CacheCore>> CacheCore::create(CacheOptions options,
                                                     boost::asio::any_io_executor loop,
                                                     boost::asio::any_io_executor workers,
                                                     boost::asio::any_io_executor disk) {
  KV_RETURN_IF_ERROR(validate(options));
  KV_ASSIGN_OR_RETURN(uint64_t budget, ram_budget(options));
  KV_RETURN_IF_ERROR(check_shares(options, budget));
  auto staging = static_cast<uint64_t>(static_cast<double>(budget) * options.staging_fraction);
  const Backing backing = options.segments ? Backing::segments : Backing::anonymous;
  auto env = std::make_shared<Env>(std::move(options), std::move(loop), std::move(workers),
                                   std::move(disk), RamPool::create(budget, staging, backing));
  std::unique_ptr<CacheCore> core(new CacheCore(std::make_unique<Owners>(env)));
  Owners& own = *core->own_;
  own.begin();
  KV_RETURN_IF_ERROR(own.reconciler.open());
  own.scrubber.begin(own.reconciler.scrubbed_place());
  env->progress();
  return core;
}

CacheCore::CacheCore(std::unique_ptr<Owners> owners) : own_(std::move(owners)) {}
CacheCore::~CacheCore() { own_->close("the cache is closing"); }

// The verbs.

Result<uint64_t> CacheCore::connect(const std::string& ns, Right right) {
  Result<uint64_t> session = Status(StatusCode::unavailable, "the cache has ended");
  if (!own_->env->closed()) own_->env->run([&] { session = own_->calls.connect(ns, right); });
  return session;
}
void CacheCore::count_denied() { ++own_->env->count.denied; }
void CacheCore::disconnect(uint64_t session) {
  if (own_->env->closed()) return;
  own_->env->run([&] {
    own_->calls.disconnect(session);
    own_->reservations.end_session(session);
    own_->models.rest_unused();
  });
}
void CacheCore::open(uint64_t session, OpenRequest request, Deadline deadline,
                     Done<Result<OpenReply>> done) {
  own_->env->run([&] { own_->opens.open(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::lookup(uint64_t session, QueryRequest request, Deadline deadline,
                       Done<Result<LookupReply>> done) {
  own_->env->run(
      [&] { own_->fetches.lookup(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::prefetch(uint64_t session, PrefetchRequest request, Deadline deadline,
                         Done<Result<LookupReply>> done) {
  own_->env->run(
      [&] { own_->fetches.prefetch(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::hold(uint64_t session, HoldRequest request, Deadline deadline,
                     Done<Result<HoldReply>> done) {
  own_->env->run([&] { own_->holds.hold(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::renew(uint64_t session, uint64_t hold, Milliseconds time, Deadline deadline,
                      Done<Result<Milliseconds>> done) {
  own_->env->run([&] { own_->holds.renew(session, hold, time, deadline, std::move(done)); });
}
void CacheCore::release(uint64_t session, uint64_t hold, Deadline deadline, Done<Status> done) {
  own_->env->run([&] { own_->holds.release(session, hold, deadline, std::move(done)); });
}
void CacheCore::fetch(uint64_t session, FetchRequest request, Deadline deadline,
                      Done<Result<FetchReply>> done) {
  own_->env->run(
      [&] { own_->fetches.fetch(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::reserve(uint64_t session, ReserveRequest request, Deadline deadline,
                        Done<Result<ReserveReply>> done) {
  own_->env->run(
      [&] { own_->reservations.reserve(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::put(uint64_t session, PutRequest request, std::shared_ptr<RoomCharges> room,
                    Deadline deadline, Done<Status> done) {
  own_->env->run([&] {
    own_->puts.put(session, std::move(request), std::move(room), deadline, std::move(done));
  });
}
void CacheCore::commit(uint64_t session, uint64_t reservation, Durability wait_for,
                       Deadline deadline, Done<Result<CommitReply>> done) {
  own_->env->run(
      [&] { own_->commits.commit(session, reservation, wait_for, deadline, std::move(done)); });
}
void CacheCore::abort(uint64_t session, uint64_t reservation, Deadline deadline,
                      Done<Status> done) {
  own_->env->run(
      [&] { own_->reservations.abort(session, reservation, deadline, std::move(done)); });
}
void CacheCore::erase(uint64_t session, uint32_t model, Query query, Deadline deadline,
                      Done<Result<uint64_t>> done) {
  own_->env->run(
      [&] { own_->eraser.erase(session, model, std::move(query), deadline, std::move(done)); });
}
void CacheCore::erase_entry(uint64_t session, QueryRequest request, Deadline deadline,
                            Done<Result<uint64_t>> done) {
  own_->env->run(
      [&] { own_->eraser.erase_entry(session, std::move(request), deadline, std::move(done)); });
}
void CacheCore::stats(uint64_t session, Deadline deadline, Done<Result<StatsReply>> done) {
  own_->env->run([&] { own_->stats.stats(session, deadline, std::move(done)); });
}
void CacheCore::drain(Deadline deadline, Done<Status> done) {
  own_->env->run([&] { own_->drain.begin(deadline, std::move(done)); });
}

// Memory of a connection's frames.

void CacheCore::allocate_staging(uint64_t session, uint64_t bytes, StagingFor what,
                                 Deadline deadline, Done<Result<Staging>> done) {
  own_->env->run([&] {
    auto call = own_->calls.begin<Result<Staging>>(session, deadline, std::move(done));
    if (call->finished()) return;
    const RamPool& pool = *own_->env->pool;
    uint64_t body = RamPool::slab_bytes(bytes), limit = pool.staging_limit_bytes();
    Room room;
    room.share = own_->calls.session(session)->share;
    room.staging = 2 * body;
    if (what == StagingFor::put) {
      // Codes are smaller than their input; copied rows have room from their reservation.
      room.staging = std::max(body, std::min(2 * body, limit));
      room.index = most_index_bytes(kMaxBlockTokens);
      uint64_t rest = pool.most_bytes() - std::min(pool.most_bytes(), room.total());
      room.stored = std::min(body, rest);
    }
    auto allocate = [env = own_->env, call, bytes](Result<std::shared_ptr<RoomCharges>> got) {
      if (call->finished()) return;
      if (!got.ok()) return call->fail(got.status());
      env->on_worker(
          [pool = env->pool, charges = *got, bytes]() -> Result<Staging> {
            Staging staging{pool->allocate(bytes, charges->staging), charges};
            touch_pages(staging.body);
            return staging;
          },
          [env = env.get(), call](Result<Staging> staging) {
            if (call->finished()) return free_on(env->workers, std::move(staging));
            call->finish(std::move(staging));
          });
    };
    own_->room.with_room(room, deadline, std::move(allocate));
  });
}

std::shared_ptr<const void> CacheCore::reply_room(uint64_t bytes) {
  std::shared_ptr<const void> got;
  if (own_->env->closed()) return got;
  own_->env->run([&] { got = own_->room.room_now({.reply = bytes}); });
  return got;
}
std::shared_ptr<const void> CacheCore::session_room(uint64_t bytes) {
  std::shared_ptr<const void> got;
  if (own_->env->closed()) return got;
  own_->env->run([&] { got = own_->room.room_now({.session = bytes}); });
  return got;
}

void CacheCore::announce(const std::string& ns, std::vector<uint32_t> segments,
                         Done<std::vector<std::shared_ptr<const SegmentView>>> done) {
  if (own_->env->closed()) return done({});
  own_->env->run([&] {
    Env& env = *own_->env;
    Room room;  // held until the segments count as set aside
    for (uint32_t id : segments) room.promotion += env.pool->segments()->missing_bytes(id);
    const uint64_t limit =
        own_->index.tiers().ram().part_limit(env.namespaces.share(ns)) / kMappedShare;
    auto run = [&env, ns, limit, segments = std::move(segments),
                done = std::move(done)](Result<std::shared_ptr<RoomCharges>> got) {
      if (!got.ok()) return done({});
      env.on_worker([own = env.shared_from_this(), ns, limit, segments,
                     charges = *got] { return announce_all(*own, ns, limit, segments); },
                    [done](std::vector<std::shared_ptr<const SegmentView>> views) {
                      done(std::move(views));
                    });
    };
    if (room.promotion == 0) return run(std::make_shared<RoomCharges>());
    own_->room.with_room(room, Clock::now() + kAnnounceWait, std::move(run));
  });
}

std::shared_ptr<const Lease> CacheCore::share(Lease lease) {
  struct Shared {
    Lease lease;
    boost::asio::any_io_executor workers;
    PostMemory memory;
  };
  auto shared = std::make_shared<Shared>();
  shared->lease = std::move(lease);
  shared->workers = own_->env->workers;
  auto free = [shared](const Lease*) {
    post_surely(shared->workers, shared->memory, [shared] { shared->lease = Lease(); });
  };
  return std::shared_ptr<const Lease>(&shared->lease, std::move(free));
}

void CacheCore::no_memory() { own_->env->no_memory(); }

// A core that has ended for lack of memory may have ended in the middle of a step.
void CacheCore::check_invariants() const {
  if (!own_->env->closed()) own_->check_invariants();
}
const std::shared_ptr<RamPool>& CacheCore::pool() const { return own_->env->pool; }
const CacheOptions& CacheCore::options() const { return own_->env->options; }

}  // namespace kv
