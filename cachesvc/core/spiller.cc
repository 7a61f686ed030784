// The queue: who enters it, in which order, and when a batch of it is written.
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

Spiller::Spiller(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, WritePace& pace,
                 SpillRetries& retries, SpillWriter& writer)
    : env_(env),
      index_(index),
      records_(records),
      lane_(lane),
      pace_(pace),
      retries_(retries),
      writer_(writer) {
  retries_.begin([this] { pump(); });
  writer_.begin({[this] { pump(); }, [this](Record& record) { file_lost(record); }});
}

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
  retries_.all();
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
  writer_.pump();
  if (writer_.packs()) return;
  retries_.arm();
  refill_queue();
  if (records_.first(Disk::queued) && !waits_for_budget()) writer_.start();
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
  const DiskLists& lists = records_.lists();
  KV_CHECK(lists.queue_bytes() <= env_.options.spill_queue_bytes ||
           lists.count(Disk::queued) + lists.count(Disk::writing) == 1);
}

// True if nothing may be written now; pump() follows when it may, and then the objects used most go
// first.
bool Spiller::waits_for_budget() {
  if (!pace_.limited()) return false;
  if (writer_.writes()) return true;  // the batch's bytes are charged first
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
