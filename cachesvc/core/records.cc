// Records: arrows, lists and sums.
#include "cachesvc/core/records.h"

#include <algorithm>
#include <initializer_list>

namespace kv {
namespace {

using enum Disk;

constexpr uint32_t bit(Disk state) { return 1u << static_cast<unsigned>(state); }
constexpr uint32_t set_of(std::initializer_list<Disk> states) {
  uint32_t out = 0;
  for (Disk state : states) out |= bit(state);
  return out;
}

// States that each state may move to.
constexpr std::array<uint32_t, kDiskStates> kArrows = {
    /* absent     */ set_of({waiting, queued, known}),
    /* refused    */ set_of({waiting, queued, known}),
    /* waiting    */ set_of({absent, queued, known}),
    /* queued     */ set_of({writing, known}),
    /* writing    */ set_of({renamed, durable, failed, known}),
    /* failed     */ set_of({waiting, queued, known}),
    /* known      */ set_of({absent, renamed, durable, unreadable}),
    /* renamed    */ set_of({absent, refused, durable, known, unreadable}),
    /* durable    */ set_of({absent, refused, known, unreadable}),
    /* unreadable */ set_of({absent, known}),
};

bool in_queue(Disk state) { return state == queued || state == writing; }
// States of objects that RAM does not have.
bool without_ram(Disk state) { return state == known || state == Disk::unreadable; }

}  // namespace

bool Records::may_move(Disk from, Disk to) {
  return (kArrows[static_cast<size_t>(from)] & bit(to)) != 0;
}

void Records::enter(Record& record) {
  list(record.disk).push_back(record);
  ++counts_[static_cast<size_t>(record.disk)];
  if (in_queue(record.disk)) queue_bytes_ += record.payload_bytes;
}

void Records::leave(Record& record) {
  if (!record.disk_hook.is_linked()) return;
  record.disk_hook.unlink();
  --counts_[static_cast<size_t>(record.disk)];
  if (in_queue(record.disk)) queue_bytes_ -= record.payload_bytes;
}

void Records::move(Record& record, Disk to, uint64_t allocated_bytes,
                   std::optional<uint64_t> recency) {
  const Disk from = record.disk;
  if (from == to && record.disk_hook.is_linked()) return;
  const bool is_new = !record.disk_hook.is_linked();
  KV_CHECK(is_new || may_move(from, to));
  leave(record);
  index_.tiers().set_disk(record, to, allocated_bytes, recency);
  enter(record);
}

void Records::found(Record& record, uint64_t payload_bytes, uint64_t file_bytes,
                    uint64_t allocated_bytes, uint64_t recency) {
  record.payload_bytes = payload_bytes;
  move(record, known, allocated_bytes, recency);
  record.file.bytes = std::max<uint64_t>(1, file_bytes);
  record.file.syncs_before = syncs_;
}

void Records::given(Record& record, RamObject object) {
  KV_CHECK(!record.ram && !record.verified());
  index_.tiers().set_ram(record, std::move(object));
  move(record, absent);
}

void Records::written(Record& record, Durability reached, uint64_t allocated_bytes) {
  move(record, reached == Durability::durable ? durable : renamed, allocated_bytes);
  record.file.bytes = std::max<uint64_t>(1, allocated_bytes);
  record.file.syncs_before = syncs_;
}

void Records::read(Record& record, RamObject object) {
  if (object.object && !record.ram) index_.tiers().set_ram(record, std::move(object));
  if (record.disk == Disk::unreadable) move(record, known);
  if (record.disk != known) return;
  bool was_synced = record.file.syncs_before < synced_;
  move(record, was_synced ? durable : renamed);
  if (!was_synced) record.file.syncs_before = syncs_;
}

void Records::unreadable(Record& record, Clock::time_point retry_at) {
  if (record.ram || !record.on_ssd()) return;
  move(record, Disk::unreadable);
  record.file.retry_at = retry_at;
}

void Records::lost(Record& record, bool made_room, Cause cause) {
  record.file.bytes = 0;
  if (!record.ram) return remove(record, cause);
  if (record.on_ssd()) move(record, made_room ? refused : absent);
}

bool Records::leave_ram(Record& record, Cause cause) {
  if (record.on_ssd()) {
    index_.tiers().drop_ram(record);
    return false;
  }
  if (record.file.bytes == 0) {
    remove(record, cause);
    return true;
  }
  move(record, known, record.file.bytes);
  record.file.syncs_before = syncs_;
  index_.tiers().drop_ram(record);
  return false;
}

void Records::remove(Record& record, Cause cause) {
  if (departures_) departures_->note(record.name, cause);
  leave(record);
  index_.remove(record);
}

bool Records::synced(uint64_t sync, size_t most) {
  List& unsynced = list(renamed);
  for (; !unsynced.empty() && unsynced.front().file.syncs_before < sync; --most) {
    if (most == 0) return false;
    move(unsynced.front(), durable);
  }
  synced_ = sync;
  return true;
}

Record* Records::first(Disk state) { return list(state).empty() ? nullptr : &list(state).front(); }

void Records::order_queue(const std::function<bool(const Record&, const Record&)>& before) {
  list(queued).sort(before);
}

void Records::check_invariants() const {
  uint64_t in_queue_bytes = 0;
  size_t listed = 0;
  for (size_t i = 0; i < kDiskStates; ++i) {
    size_t count = 0;
    for (const Record& r : lists_[i]) {
      ++count;
      KV_CHECK(r.disk == static_cast<Disk>(i));
      KV_CHECK(r.on_ssd() ? r.file.bytes > 0 : static_cast<bool>(r.ram));
      KV_CHECK(!r.ram || !without_ram(r.disk));
      KV_CHECK(index_.tiers().ssd_of(r).resident(r.key) == r.on_ssd() &&
               index_.tiers().ram_of(r).resident(r.key) == static_cast<bool>(r.ram));
      if (in_queue(r.disk)) in_queue_bytes += r.payload_bytes;
    }
    KV_CHECK(count == counts_[i]);
    listed += count;
  }
  KV_CHECK(in_queue_bytes == queue_bytes_);
  KV_CHECK(listed == index_.size());
  index_.check_invariants();
}

}  // namespace kv
