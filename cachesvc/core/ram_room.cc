// Room for requests. The index's share: core/ram_room_index.cc.
#include "cachesvc/core/ram_room.h"

#include <algorithm>
#include <iterator>

namespace kv {
namespace {

// Limits of evictions in one handler for one waiter: bytes, and one object more; objects.
constexpr uint64_t kEvictedAtATime = 4u << 20;
constexpr size_t kObjectsAtATime = 64;
// Evicted bytes that the handler frees itself: a worker's answer takes longer than that.
constexpr uint64_t kFreedHere = 256u << 10;
constexpr Milliseconds kFreedSoon{1};  // pause before a waiter looks whether a worker has freed

}  // namespace

RamRoom::RamRoom(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, Recency& recency,
                 Spiller& spiller)
    : env_(env),
      index_(index),
      records_(records),
      lane_(lane),
      recency_(recency),
      spiller_(spiller),
      leaving_(env),
      transit_(env),
      last_turn_(env.namespaces.count()) {}

uint64_t RamRoom::share_of(ShareId share) const {
  const uint64_t quota = env_.namespaces.quota(share).ram_bytes;
  return quota == 0 ? UINT64_MAX : quota;
}

// Free bytes are checked first: giving back a part would count as a release, and wake the waiter
// for this very room again and again.
std::shared_ptr<RoomCharges> RamRoom::try_room(const Room& room) {
  RamPool& pool = *env_.pool;
  if (pool.used_bytes() + room.total() > pool.budget_bytes()) return nullptr;
  if (transit_.full(room) || index_full(room.index)) return nullptr;
  auto out = std::make_shared<RoomCharges>();
  struct {
    ChargeKind kind;
    uint64_t bytes;
    Charge* into;
  } parts[] = {{ChargeKind::stored, room.stored, &out->stored},
               {ChargeKind::staging, room.staging, &out->staging},
               {ChargeKind::promotion, room.promotion, &out->promotion},
               {ChargeKind::reply, room.reply, &out->reply},
               {ChargeKind::index, room.index, &out->index},
               {ChargeKind::session, room.session, &out->session},
               {ChargeKind::model, room.model, &out->model}};
  for (auto& p : parts) {
    if (p.bytes == 0) continue;
    auto charge = pool.try_charge(p.kind, p.bytes, room.share);
    if (!charge) return nullptr;
    *p.into = std::move(*charge);
  }
  return out;
}

void RamRoom::evict(Record& record, ShareId by, bool free_here) {
  if (!free_here) leaving_.add(record.ram, record.payload_bytes);
  note_eviction(env_, record, Leaves::ram, !record.on_ssd());
  bool gone = recency_.leave_ram(record, {Missing::evicted_ram, by});
  ++(gone ? env_.count.ram_evicted_dirty : env_.count.ram_evicted_clean);
}

// Evicts at most `most_bytes` and one object more, or kObjectsAtATime; without a limit all that is
// needed, freed on this thread.
RamRoom::Step RamRoom::make_room(const Room& room, bool dirty_too, uint64_t most_bytes) {
  if (auto charges = try_room(room)) return {std::move(charges)};
  if (transit_.full(room)) return {};
  bool more_may_go = false;
  const size_t most_objects = most_bytes == kNoLimit ? SIZE_MAX : kObjectsAtATime;
  if (!make_index_room(room.index, dirty_too, most_objects, more_may_go)) {
    return {nullptr, more_may_go ? Next::evict : Next::nothing};
  }
  if (auto charges = try_room(room)) return {std::move(charges)};
  Step step = evict_for(room, dirty_too, most_bytes, most_objects);
  leaving_.go();
  return step;
}

RamRoom::Step RamRoom::evict_for(const Room& room, bool dirty_too, uint64_t most_bytes,
                                 size_t most_objects) {
  const bool at_once = most_bytes == kNoLimit;
  uint64_t evicted = 0;
  size_t objects = 0;
  while (true) {
    const uint64_t free = env_.pool->free_bytes(), coming = at_once ? 0 : leaving_.bytes();
    if (room.total() <= free) return {};  // an account is full
    if (room.total() <= free + coming) return {nullptr, Next::freed};
    const uint64_t needed = room.total() - free - coming;
    auto victims = index_.tiers().ram().next_victims(std::min(needed, most_bytes), dirty_too,
                                                     {room.share, room.total()});
    if (victims.keys.empty()) return {nullptr, coming > 0 ? Next::freed : Next::nothing};
    for (EntryKey key : victims.keys) {
      if (evicted >= most_bytes || objects == most_objects) return {nullptr, Next::evict};
      Record* r = index_.find_key(key);
      KV_CHECK(r && r->ram);
      evicted += r->payload_bytes;
      ++objects;
      evict(*r, room.share, at_once || evicted <= kFreedHere);
    }
    if (auto charges = try_room(room)) return {std::move(charges)};
  }
}

RamRoom::Step RamRoom::step_of(const Room& room, uint64_t most_bytes) {
  Step step = make_room(room, false, most_bytes);
  if (step.charges || step.next != Next::nothing) return step;
  return spiller_.ask_for_room({room.share, room.total()}) ? Step{}
                                                           : make_room(room, true, most_bytes);
}

std::shared_ptr<RoomCharges> RamRoom::room_now(const Room& room) {
  return step_of(room, kNoLimit).charges;
}

Status RamRoom::can_never_fit(const Room& room) const {
  auto over = [](uint64_t bytes, const char* what, uint64_t limit) {
    return Status(StatusCode::resource_exhausted,
                  "needs " + std::to_string(bytes) + what + std::to_string(limit));
  };
  const uint64_t budget = env_.pool->most_bytes();
  const uint64_t staging = transit_.most_staging(room.share);
  const uint64_t reply = transit_.most_reply(room.share);
  const uint64_t quota = env_.namespaces.quota(room.share).in_flight_bytes;
  if (quota > 0 && room.staging + room.reply > quota) return transit_.within_quota(room);
  if (room.staging > staging)
    return over(room.staging, " bytes in transit, staging limit ", staging);
  if (room.reply > reply) return over(room.reply, " bytes for a decoded reply, limit ", reply);
  if (room.index > index_limit()) {
    return over(room.index, " bytes of index, its share of RAM is ", index_limit());
  }
  if (room.total() > budget) return over(room.total(), " bytes of RAM, budget ", budget);
  const uint64_t share = share_of(room.share);
  if (room.stored <= share) return {};
  return within_quota(env_.namespaces.name(room.share), "RAM", share,
                      index_.tiers().ram().bytes(room.share), room.stored);
}

// Inserts a waiter behind its own share's waiters. Each other share keeps as many before it as its
// own share has: shares take turns.
RamRoom::Waiters::iterator RamRoom::queue(const Room& room, RoomDone done) {
  uint64_t& last = last_turn_[room.share];
  last = std::max(last, turn_) + 1;
  auto at = waiters_.end();
  while (at != waiters_.begin() && std::prev(at)->turn > last) --at;
  return waiters_.insert(at, {room, {}, std::move(done), nullptr, last, {}, false, Clock::now()});
}

void RamRoom::with_room(Room room, Deadline deadline, RoomDone done,
                        const std::shared_ptr<CallBase>& call) {
  if (Status never = can_never_fit(room); !never.ok()) return done(never);
  Next next = Next::nothing;
  if (waiters_.empty()) {
    Step step = step_of(room, kEvictedAtATime);
    if (step.charges) return done(std::move(step.charges));
    next = step.next;
  }
  if (waiters_.size() >= env_.options.max_waiting_calls) {
    ++env_.count.busy;
    return done(Status(StatusCode::busy, "max_waiting_calls reached"));
  }
  env_.room_wanted = true;
  auto waiter = queue(room, std::move(done));
  waiter->deadline = std::min<Deadline>(deadline, Clock::now() + env_.options.room_wait);
  waiter->timer =
      std::make_unique<Timer>(env_.loop, env_.handler([this, waiter] { timed_out(waiter); }));
  waiter->timer->arm_at(waiter->deadline);
  if (call) {
    KV_CHECK(!call->on_end);
    waiter->call = call;
    call->on_end = [waiter] {
      waiter->left = true;
      waiter->timer->arm_in(Milliseconds(0));  // its callback may be the call's last owner
    };
  }
  next == Next::evict ? env_.room_freed() : pump();
}

void RamRoom::pump() {
  if (pumping_) return;
  pumping_ = true;
  while (true) {
    // The notice is armed before the attempt, so that no release falls between attempt and wait.
    env_.pool->notify_once();
    auto first = std::find_if(waiters_.begin(), waiters_.end(), [this](const Waiter& w) {
      return !w.left && !transit_.full(w.room);
    });
    if (first == waiters_.end()) break;
    Step step = step_of(first->room, kEvictedAtATime);
    if (step.next == Next::evict) env_.room_freed();
    if (!step.charges) break;
    turn_ = std::max(turn_, first->turn);
    take(first).done(std::move(step.charges));
  }
  env_.room_wanted = !waiters_.empty();
  pumping_ = false;
}

RamRoom::Waiter RamRoom::take(Waiters::iterator waiter) {
  if (auto call = waiter->call.lock()) call->on_end = nullptr;
  env_.measures.room_wait.add(Measures::microseconds(Clock::now() - waiter->since));
  Waiter taken = std::move(*waiter);
  waiters_.erase(waiter);
  return taken;
}

// Evicts dirty leaves for a waiter whose time is up, in steps; it is served next.
void RamRoom::timed_out(Waiters::iterator waiter) {
  if (waiter->left) {
    env_.room_freed();  // it stood before others
    return take(waiter).done(Status(StatusCode::unavailable, "the call has ended"));
  }
  Step step = make_room(waiter->room, true, kEvictedAtATime);
  if (step.next != Next::nothing) {
    waiter->turn = 0;
    waiters_.splice(waiters_.begin(), waiters_, waiter);
    return waiter->timer->arm_in(step.next == Next::freed ? kFreedSoon : Milliseconds(0));
  }
  Waiter ended = take(waiter);
  env_.room_freed();  // the waiters behind it look again
  if (step.charges) return ended.done(std::move(step.charges));
  ++env_.count.busy;
  ended.done(busy(ended.room));
}

Status RamRoom::busy(const Room& room) const {
  if (Status over = transit_.within_quota(room); !over.ok()) {
    ++env_.count.over_quota;
    return over;
  }
  if (index_full(room.index)) {
    return {StatusCode::resource_exhausted, "the index has its share of RAM, " +
                                                std::to_string(index_limit()) +
                                                " bytes, and nothing in it may go now"};
  }
  return {StatusCode::busy, "no RAM for " + std::to_string(room.total()) +
                                " bytes now: all of it is pinned, leased or in use"};
}

}  // namespace kv
