// The queue, its refill, and retries. Batches: core/spill_write.cc.
#include "cachesvc/core/spiller.h"

#include <algorithm>

#include "cachesvc/core/paths.h"

namespace kv {
namespace {

bool on_its_way(const Record& r) {
  return r.on_ssd() || r.disk == Disk::queued || r.disk == Disk::writing;
}

// True if the record has no ancestors.
bool is_root(const Record& r) {
  if (r.name.kind == ObjectKind::snapshot) return r.node == kRootNode;
  return r.name.kind != ObjectKind::supplement && r.realm->tree.parent(r.node) == kRootNode;
}

}  // namespace

Spiller::Spiller(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, RamChecks& checks,
                 Models& models, ModelRecords& model_records, Syncer& syncer, WritePace& pace,
                 RemoteWrites& remote)
    : env_(env),
      index_(index),
      records_(records),
      lane_(lane),
      checks_(checks),
      models_(models),
      model_records_(model_records),
      syncer_(syncer),
      pace_(pace),
      remote_(remote),
      retry_timer_(env.loop, env.handler([this] {
        retry(std::exchange(works_, false) ? SIZE_MAX : 1);
        pump();
      })) {}

Spiller::Asked Spiller::ask(Record& record) {
  if (!lane_ || !record.realm) return Asked::in_vain;
  if (on_its_way(record)) return Asked::on_its_way;
  // Ancestors first; a missing one means that the object could never be reached on the SSD.
  std::vector<Record*> way;
  for (Record* at = &record; !on_its_way(*at);) {
    if (!at->ram) return Asked::in_vain;
    way.push_back(at);
    if (is_root(*at)) break;
    at = parent_of(*at);
    if (!at) {
      ++env_.count.spills_dropped;
      return Asked::in_vain;
    }
  }
  for (auto it = way.rbegin(); it != way.rend(); ++it) {
    Record& r = **it;
    // An empty queue takes any object, so that none waits for ever.
    const uint64_t bytes = records_.lists().queue_bytes();
    if (bytes > 0 && bytes + r.payload_bytes > env_.options.spill_queue_bytes) {
      if (record.disk != Disk::waiting) ++env_.count.spills_deferred;
      records_.wait(record);
      return Asked::waits;
    }
    records_.enqueue(r);
    r.queued_ms = env_.milliseconds();
    ++env_.count.spills_queued;
  }
  return Asked::on_its_way;
}

void Spiller::ask_for_all() {
  retry(SIZE_MAX);
  std::vector<Record*> absent;
  absent.reserve(records_.lists().count(Disk::absent));
  for (const Record& r : records_.lists().all(Disk::absent)) absent.push_back(index_.find(r.name));
  for (Record* r : absent) ask(*r);  // an object that could never be reached stays as it is
  pump();
}

bool Spiller::ask_for_room(Asker asker) {
  if (!lane_ || held_up()) return false;
  for (EntryKey key : index_.tiers().ram().next_victims(asker.bytes, true, asker).keys) {
    Record* r = index_.find_key(key);
    if (r && may_spill(*r)) ask(*r);
  }
  pump();
  return records_.lists().queue_bytes() > 0;
}

void Spiller::pump() {
  if (!lane_) return;
  if (writing_ && writing_->state() == SpillBatch::State::records) begin_writing(writing_);
  if (packing_ && packing_->state() == SpillBatch::State::packed && !writing_) {
    begin_writing(std::exchange(packing_, nullptr));
  }
  if (packing_) return;
  arm_retry();
  refill_queue();
  if (records_.first(Disk::queued) && !waits_for_budget()) start_batch();
}

void Spiller::refill_queue() {
  while (Record* r = records_.first(Disk::waiting)) {
    Asked asked = ask(*r);
    if (asked == Asked::waits) return;
    if (asked == Asked::in_vain) records_.forget_wait(*r);
  }
}

void Spiller::file_lost(Record& record, Missing why) {
  const bool again = record.ram && record.on_ssd();
  records_.lost(record, false, {why});
  if (!again) return;
  ask(record);
  env_.progress();
}

void Spiller::check_invariants() const {
  size_t written = 0;
  for (const BatchPtr& batch : {packing_, writing_}) {
    if (!batch) continue;
    for (const SpillItem& item : batch->items) {
      const Record* r = index_.find(item.which);
      written += r && r->disk == Disk::writing;
    }
  }
  KV_CHECK(written == records_.lists().count(Disk::writing));
  KV_CHECK(!packing_ || packing_->state() <= SpillBatch::State::packed);
  KV_CHECK(!writing_ || writing_->state() >= SpillBatch::State::records);
  KV_CHECK(records_.lists().queue_bytes() <= env_.options.spill_queue_bytes ||
           records_.lists().count(Disk::queued) + records_.lists().count(Disk::writing) == 1);
}

// Retries.

void Spiller::fail(Record& record) {
  ++env_.count.spills_failed;
  records_.fail_write(record);
  arm_retry();
}

// Retries one object that failed, to test the device; all of them if others were written meanwhile.
void Spiller::arm_retry() {
  if (env_.draining() || retry_timer_.armed() || !records_.first(Disk::failed)) return;
  retry_timer_.arm_in(env_.options.io_backoff);
}

void Spiller::retry(size_t most) {
  for (size_t tried = 0; tried < most; ++tried) {
    Record* r = records_.first(Disk::failed);
    if (!r) return;
    records_.wait(*r);
  }
}

// True if nothing may be written now; pump() follows when it may, and then the objects used most go
// first.
bool Spiller::waits_for_budget() {
  if (!pace_.limited()) return false;
  if (writing_) return true;  // the batch's bytes are charged first
  if (!pace_.may_write()) return true;
  order_by_use();
  return false;
}

bool Spiller::held_up() const { return lane_.hangs() || pace_.held_beyond(env_.options.room_wait); }

// An object's use is that of its most used descendant, so parents stay before children.
void Spiller::order_by_use() {
  std::map<const Record*, uint32_t> uses;
  for (const Record& queued : records_.lists().all(Disk::queued)) {
    Record* at = index_.find(queued.name);
    for (; at && at->disk == Disk::queued; at = parent_of(*at)) {
      auto [it, fresh] = uses.try_emplace(at, queued.use.fetches);
      if (!fresh && it->second >= queued.use.fetches) break;
      it->second = queued.use.fetches;
    }
  }
  records_.order_queue([&](const Record& a, const Record& b) { return uses.at(&a) > uses.at(&b); });
}

}  // namespace kv
