// Making room in RAM: drop clean leaves, wait a bounded time for spills and leases, drop dirty
// leaves (counted), then busy. Whoever waits holds nothing yet; waiters are served in order.
#include <algorithm>

#include "cachesvc/core/impl.h"

namespace kv {
namespace {

// Of one call that waits: bytes, and one object more; objects.
constexpr uint64_t kEvictedAtATime = 4u << 20;
constexpr size_t kObjectsAtATime = 64;
// At most so much of the budget is decoded for clients: those that don't read leave others room.
constexpr uint64_t kReplyQuarters = 3;

}  // namespace

uint64_t CacheCore::Impl::reply_limit() const { return pool_->budget_bytes() / 4 * kReplyQuarters; }

// True if it waits for others' staging or replies, however much RAM is free: nothing is evicted for
// it then, and those behind it have their turn.
bool CacheCore::Impl::account_full(const Room& room) const {
  auto full = [this](ChargeKind kind, uint64_t bytes, uint64_t limit) {
    return bytes > 0 && pool_->used_bytes(kind) + bytes > limit;
  };
  return full(ChargeKind::staging, room.staging, pool_->staging_limit_bytes()) ||
         full(ChargeKind::reply, room.reply, reply_limit());
}

// All charges or none. Looks first: giving back a part would count as a release, and wake whoever
// waits for this very room to try again, for ever.
std::shared_ptr<RoomCharges> CacheCore::Impl::try_room(const Room& room) {
  if (pool_->used_bytes() + room.total() > pool_->budget_bytes()) return nullptr;
  if (account_full(room) || index_full(room.index)) return nullptr;
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
    auto charge = pool_->try_charge(p.kind, p.bytes);
    if (!charge) return nullptr;
    *p.into = std::move(*charge);
  }
  return out;
}

void CacheCore::Impl::evict(Record& record) {
  ++(leave_ram(record) ? count_.ram_evicted_dirty : count_.ram_evicted_clean);
}

// True if it is gone: no file of it is on the SSD.
bool CacheCore::Impl::leave_ram(Record& record) {
  tell_use(record);
  return records_.leave_ram(record);
}

// What made room on the SSD, or failed to be written, is not asked for by itself.
bool CacheCore::Impl::may_spill(const Record& record) {
  return record.disk == Disk::absent || record.disk == Disk::waiting;
}

// Drops at most `most_bytes`, and one object more, or kObjectsAtATime: the system takes
// milliseconds to get megabytes back, and their charges must go back here. Null with
// room_step_over_ then.
std::shared_ptr<RoomCharges> CacheCore::Impl::make_room(const Room& room, bool dirty_too,
                                                        uint64_t most_bytes) {
  room_step_over_ = false;
  if (auto charges = try_room(room)) return charges;
  if (account_full(room)) return nullptr;
  const size_t most_objects = most_bytes == UINT64_MAX ? SIZE_MAX : kObjectsAtATime;
  if (!make_index_room(room.index, dirty_too, most_objects)) return nullptr;
  if (auto charges = try_room(room)) return charges;
  uint64_t evicted = 0;
  size_t objects = 0;
  while (true) {
    uint64_t used = pool_->used_bytes(), budget = pool_->budget_bytes();
    uint64_t needed = room.total() > budget - used ? room.total() - (budget - used) : 1;
    auto victims = index_.ram().next_victims(std::min(needed, most_bytes), dirty_too);
    if (victims.keys.empty()) return nullptr;
    if (used + room.total() <= budget) return nullptr;  // an account is full
    for (EntryKey key : victims.keys) {
      if (evicted >= most_bytes || objects == most_objects) {
        room_step_over_ = true;
        room_wake_->ask();
        return nullptr;
      }
      Record* r = index_.find_key(key);
      KV_CHECK(r && r->ram);
      evicted += r->payload_bytes;
      ++objects;
      evict(*r);
    }
    if (auto charges = try_room(room)) return charges;
  }
}

// Sends dirty objects on their way to the SSD, so that their bytes can be dropped afterwards. True
// if something is on its way.
bool CacheCore::Impl::spill_for_room(uint64_t bytes) {
  if (!ssd_ || held_up()) return false;
  for (EntryKey key : index_.ram().next_victims(bytes, true).keys) {
    Record* r = index_.find_key(key);
    if (r && may_spill(*r)) enqueue_spill(*r);
  }
  pump_spill();
  return records_.queue_bytes() > 0;
}

// What there is without waiting: dirty leaves go only where no spill can save them.
std::shared_ptr<RoomCharges> CacheCore::Impl::room_now(const Room& room, uint64_t most_bytes) {
  auto charges = make_room(room, false, most_bytes);
  if (charges || room_step_over_) return charges;
  return spill_for_room(room.total()) ? nullptr : make_room(room, true, most_bytes);
}

Status CacheCore::Impl::can_never_fit(const Room& room) const {
  auto over = [](uint64_t bytes, const char* what, uint64_t limit) {
    return Status(StatusCode::resource_exhausted,
                  "needs " + std::to_string(bytes) + what + std::to_string(limit));
  };
  const uint64_t staging = pool_->staging_limit_bytes(), budget = pool_->budget_bytes();
  if (room.staging > staging)
    return over(room.staging, " bytes in transit, staging limit ", staging);
  if (room.reply > reply_limit()) {
    return over(room.reply, " bytes for a decoded reply, limit ", reply_limit());
  }
  if (room.index > index_limit()) {
    return over(room.index, " bytes of index, its share of RAM is ", index_limit());
  }
  if (room.total() > budget) return over(room.total(), " bytes of RAM, budget ", budget);
  return {};
}

void CacheCore::Impl::with_room(Room room, Deadline deadline, RoomDone done) {
  if (Status never = can_never_fit(room); !never.ok()) return done(never);
  if (room_waiters_.empty()) {
    if (auto charges = room_now(room, kEvictedAtATime)) return done(charges);
  }
  if (room_waiters_.size() >= options_.max_waiting_calls) {
    ++count_.busy;
    return done(Status(StatusCode::busy, "max_waiting_calls reached"));
  }
  uint64_t id = next_waiter_++;
  auto end = std::min<Deadline>(deadline, Clock::now() + options_.room_wait);
  auto timer = std::make_unique<boost::asio::steady_timer>(loop_, end);
  timer->async_wait([weak = weak_from_this(), id](boost::system::error_code error) {
    auto self = weak.lock();
    if (!error && self && !self->closed_) self->room_timeout(id);
  });
  room_waiters_.push_back({id, room, end, std::move(done), std::move(timer)});
  if (!room_step_over_) pump_room();
}

// Serves waiters in order, but for those whose account is full, as long as there is room; called
// whenever bytes or pins were released.
void CacheCore::Impl::pump_room() {
  if (pumping_room_ || closed_) return;
  pumping_room_ = true;
  // Whatever stops this half way: the others' turn comes with the next release, or their time-out.
  Rollback pumping([this] { pumping_room_ = false; });
  while (true) {
    // Armed before the attempt, so that no release falls between attempt and wait.
    pool_->notify_once();
    auto first = std::find_if(room_waiters_.begin(), room_waiters_.end(),
                              [this](const RoomWaiter& w) { return !account_full(w.room); });
    if (first == room_waiters_.end()) break;
    auto charges = room_now(first->room, kEvictedAtATime);
    if (!charges) break;
    RoomDone done = std::move(first->done);
    room_waiters_.erase(first);
    done(charges);
  }
}

void CacheCore::Impl::room_timeout(uint64_t id) {
  auto it = std::find_if(room_waiters_.begin(), room_waiters_.end(),
                         [id](const RoomWaiter& w) { return w.id == id; });
  if (it == room_waiters_.end()) return;
  std::shared_ptr<RoomCharges> charges;  // null without memory too: busy
  (void)if_memory([&] { charges = make_room(it->room, true, kEvictedAtATime); });
  if (room_step_over_ && if_memory([&] { later([this, id] { room_timeout(id); }); })) {
    return room_waiters_.splice(room_waiters_.begin(), room_waiters_, it);  // its turn is next
  }
  RoomWaiter waiter = std::move(*it);
  room_waiters_.erase(it);
  room_wake_->ask();
  if (charges) {
    waiter.done(charges);
  } else {
    ++count_.busy;
    if (index_full(waiter.room.index)) {
      return waiter.done(Status(StatusCode::resource_exhausted,
                                "the index has its share of RAM, " + std::to_string(index_limit()) +
                                    " bytes, and nothing in it may go now"));
    }
    waiter.done(Status(StatusCode::busy, "no RAM for " + std::to_string(waiter.room.total()) +
                                             " bytes now: all of it is pinned, leased or in use"));
  }
}

}  // namespace kv
