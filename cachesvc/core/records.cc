// Records: arrows, and what each of them changes.
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

// States of objects that RAM does not have.
bool without_ram(Disk state) { return state == known || state == Disk::unreadable; }

}  // namespace

bool Records::may_move(Disk from, Disk to) {
  return (kArrows[static_cast<size_t>(from)] & bit(to)) != 0;
}

void Records::move(Record& record, Disk to, uint64_t allocated_bytes,
                   std::optional<uint64_t> recency) {
  const Disk from = record.disk;
  const bool is_new = !DiskLists::listed(record);
  if (from == to && !is_new) return;
  KV_CHECK(is_new || may_move(from, to));
  lists_.leave(record);
  index_.tiers().set_disk(record, to, allocated_bytes, recency);
  lists_.enter(record);
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
  lists_.leave(record);
  index_.remove(record);
}

bool Records::synced(uint64_t sync, size_t most) {
  for (Record* r = first(renamed); r && r->file.syncs_before < sync; r = first(renamed)) {
    if (most-- == 0) return false;
    move(*r, durable);
  }
  synced_ = sync;
  return true;
}

void Records::check_invariants() const {
  lists_.check_invariants();
  size_t listed = 0;
  for (size_t i = 0; i < kDiskStates; ++i) {
    listed += lists_.count(static_cast<Disk>(i));
    for (const Record& r : lists_.all(static_cast<Disk>(i))) {
      KV_CHECK(r.on_ssd() ? r.file.bytes > 0 : static_cast<bool>(r.ram));
      KV_CHECK(!r.ram || !without_ram(r.disk));
      KV_CHECK(index_.tiers().ssd_of(r).resident(r.key) == r.on_ssd() &&
               index_.tiers().ram_of(r).resident(r.key) == static_cast<bool>(r.ram));
    }
  }
  KV_CHECK(listed == index_.size());
  index_.check_invariants();
}

}  // namespace kv
