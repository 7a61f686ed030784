// Memory of connections: room on the loop, allocation and announcement on workers.
#include "cachesvc/core/client_memory.h"

#include <algorithm>

#include "cachesvc/core/calls.h"
#include "cachesvc/core/compactor.h"
#include "cachesvc/core/index_bytes.h"
#include "cachesvc/core/ram_room.h"

namespace kv {
namespace {

constexpr size_t kTouchedBytes = 4096;  // a page, or less
// Bodies up to this are allocated on the loop: handing one to a worker and back costs more, most of
// all where others keep the processors busy.
constexpr size_t kSmallBytes = 64u << 10;

// Runs on a worker: the system takes milliseconds for memory that nobody has touched before.
Status touch_pages(std::span<uint8_t> body) {
  for (size_t at = 0; at < body.size(); at += kTouchedBytes) body[at] = 0;
  return {};
}

Staging allocated(RamPool& pool, uint64_t bytes, std::shared_ptr<RoomCharges> charges) {
  return {pool.allocate(bytes, charges->staging), charges};
}

Result<Staging> allocated_now(Env& env, uint64_t bytes, std::shared_ptr<RoomCharges> charges) try {
  return allocated(*env.pool, bytes, std::move(charges));
} catch (const std::bad_alloc&) {
  return out_of_memory();
}

// Longest wait of a reply for room for the memory of segments; then it is streamed.
constexpr Milliseconds kAnnounceWait{100};

constexpr uint64_t kAheadShare = 8;   // of the budget may be announced before anybody asks
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

Room ClientMemory::staging_room(uint64_t session, uint64_t bytes, StagingFor what) const {
  Room room;
  room.share = calls_.session(session)->share;
  const uint64_t body = RamPool::slab_bytes(bytes),
                 limit = room_.transit().most_staging(room.share);
  room.staging = 2 * body;
  if (what == StagingFor::request) return room;
  // Codes are smaller than their input; copied rows have room from their reservation.
  room.staging = std::max(body, std::min(2 * body, limit));
  room.index = most_index_bytes(kMaxBlockTokens);
  const uint64_t most = env_.pool->most_bytes(), rest = most - std::min(most, room.total());
  room.stored = std::min(body, rest);
  return room;
}

void ClientMemory::allocate_staging(uint64_t session, uint64_t bytes, StagingFor what,
                                    CallTerms terms, std::function<void(Result<Staging>)> done,
                                    Fill fill) {
  const bool small = !fill && bytes <= kSmallBytes;
  if (!fill) fill = touch_pages;
  env_.run([&] {
    auto call = calls_.begin<Result<Staging>>(session, terms, std::move(done));
    if (call->finished()) return;
    auto allocate = [env = env_.shared_from_this(), call, bytes, small,
                     fill = std::move(fill)](Result<std::shared_ptr<RoomCharges>> got) {
      if (call->finished()) return;
      if (!got.ok()) return call->fail(got.status());
      if (small) return call->finish(allocated_now(*env, bytes, *got));
      env->on_worker(
          [pool = env->pool, charges = *got, bytes, fill]() -> Result<Staging> {
            Staging staging = allocated(*pool, bytes, charges);
            KV_RETURN_IF_ERROR(fill({staging.body.data(), staging.body.size()}));
            return staging;
          },
          [env = env.get(), call](Result<Staging> staging) {
            if (call->finished()) return free_on(env->workers, std::move(staging));
            call->finish(std::move(staging));
          });
    };
    room_.with_room(staging_room(session, bytes, what), terms.deadline, std::move(allocate), call);
  });
}

void ClientMemory::write_out(uint64_t session, CallTerms terms, WriteOut write,
                             std::function<void(Status)> done) {
  struct Writing {
    std::atomic<bool> stop{false};
    bool under_way = false;
    Status ended;  // the call's end, while it is under way
    std::function<void(Status)> done;
  };
  env_.run([&] {
    auto writing = std::make_shared<Writing>();
    writing->done = std::move(done);
    auto call = calls_.begin<Status>(session, terms, [writing](Status status) {
      writing->stop = true;
      writing->ended = status;
      if (!writing->under_way) writing->done(std::move(status));
    });
    if (call->finished()) return;
    writing->under_way = true;
    env_.on_worker([writing, write = std::move(write)] { return write(writing->stop); },
                   [writing, call](Status status) {
                     writing->under_way = false;
                     if (!call->finished()) return call->finish(std::move(status));
                     writing->done(std::move(writing->ended));
                   });
  });
}

std::shared_ptr<const void> ClientMemory::room_now(const Room& room) {
  std::shared_ptr<const void> got;
  if (!env_.closed()) env_.run([&] { got = room_.room_now(room); });
  return got;
}
std::shared_ptr<const void> ClientMemory::reply_room(const std::string& ns, uint64_t bytes) {
  return room_now({.reply = bytes, .share = env_.namespaces.share(ns)});
}
std::shared_ptr<const void> ClientMemory::session_room(uint64_t bytes) {
  return room_now({.session = bytes});
}

void ClientMemory::announce(const std::string& ns, std::vector<uint32_t> segments,
                            std::function<void(Views)> done) {
  if (env_.closed()) return done({});
  env_.run([&] {
    Room room;  // held until the segments count as set aside
    for (uint32_t id : segments) room.promotion += env_.pool->segments()->missing_bytes(id);
    const uint64_t limit =
        index_.tiers().ram().part_limit(env_.namespaces.share(ns)) / kMappedShare;
    auto run = [this, ns, limit, segments = std::move(segments),
                done = std::move(done)](Result<std::shared_ptr<RoomCharges>> got) {
      if (!got.ok()) return done({});
      env_.on_worker([env = env_.shared_from_this(), ns, limit, segments,
                      charges = *got] { return announce_all(*env, ns, limit, segments); },
                     [done](Views views) { done(std::move(views)); });
    };
    if (room.promotion == 0) return run(std::make_shared<RoomCharges>());
    room_.with_room(room, Clock::now() + kAnnounceWait, std::move(run));
  });
}

void ClientMemory::announce_ahead(const std::string& ns) {
  const SegmentStore* segments = env_.pool->segments();
  if (env_.closed() || segments == nullptr) return;
  uint64_t announced = segments->announced_bytes(), missing = 0;
  std::vector<uint32_t> taken;
  for (uint32_t id : segments->open_of(ns)) {
    const uint64_t bytes = segments->bytes_once_announced(id);
    if (announced + bytes > env_.pool->most_bytes() / kAheadShare) break;
    announced += bytes;
    missing += segments->missing_bytes(id);
    taken.push_back(id);
  }
  if (taken.empty()) return;
  // Given back at once, for announce() to take.
  if (!env_.pool->try_charge(ChargeKind::promotion, missing)) return;
  announce(ns, std::move(taken), [](const Views&) {});
}

void ClientMemory::empty_retired() {
  if (!env_.closed()) env_.run([&] { compactor_.begin(); });
}

std::shared_ptr<const Lease> ClientMemory::share(Lease lease) {
  struct Shared {
    Lease lease;
    boost::asio::any_io_executor workers;
    PostMemory memory;
  };
  auto shared = std::make_shared<Shared>();
  shared->lease = std::move(lease);
  shared->workers = env_.workers;
  auto free = [shared](const Lease*) {
    post_surely(shared->workers, shared->memory, [shared] { shared->lease = Lease(); });
  };
  return std::shared_ptr<const Lease>(&shared->lease, std::move(free));
}

}  // namespace kv
