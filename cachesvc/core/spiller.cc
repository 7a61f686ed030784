// The queue, its refill, retries and the write budget. Batches: core/spill_write.cc.
#include "cachesvc/core/spiller.h"

#include <algorithm>

#include "cachesvc/core/paths.h"

namespace kv {
namespace {

bool on_its_way(const Record& r) {
  return r.on_ssd() || r.disk == Disk::queued || r.disk == Disk::writing;
}

// Nothing is above it.
bool is_root(const Record& r) {
  if (r.name.kind == ObjectKind::snapshot) return r.node == kRootNode;
  return r.name.kind != ObjectKind::supplement && r.realm->tree.parent(r.node) == kRootNode;
}

}  // namespace

Spiller::Spiller(Env& env, ObjectIndex& index, Records& records, SsdLane& lane, RamChecks& checks,
                 Models& models, Syncer& syncer)
    : env_(env),
      index_(index),
      records_(records),
      lane_(lane),
      checks_(checks),
      models_(models),
      syncer_(syncer),
      retry_timer_(env.loop, env.handler([this] {
        retry(std::exchange(works_, false) ? SIZE_MAX : 1);
        pump();
      })),
      budget_(env.options.write_bytes_per_second, env.options.write_bytes_per_day),
      budget_timer_(env.loop, env.handler([this] { env_.progress(); })) {}

Spiller::Asked Spiller::ask(Record& record) {
  if (!lane_ || !record.realm) return Asked::in_vain;
  if (on_its_way(record)) return Asked::on_its_way;
  // Its ancestors first; a hole among them means that nobody could ever reach it.
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
    // Into an empty queue anything goes, so that nothing waits for ever.
    const uint64_t bytes = records_.queue_bytes();
    if (bytes > 0 && bytes + r.payload_bytes > env_.options.spill_queue_bytes) {
      if (record.disk != Disk::waiting) ++env_.count.spills_deferred;
      records_.wait(record);
      return Asked::waits;
    }
    records_.enqueue(r);
    ++env_.count.spills_queued;
  }
  return Asked::on_its_way;
}

void Spiller::ask_for_all() {
  retry(SIZE_MAX);
  std::vector<Record*> absent;
  absent.reserve(records_.count(Disk::absent));
  for (const Record& r : records_.all(Disk::absent)) absent.push_back(index_.find(r.name));
  for (Record* r : absent) ask(*r);  // what nobody could ever reach stays where it is
  pump();
}

bool Spiller::ask_for_room(uint64_t bytes) {
  if (!lane_ || held_up()) return false;
  for (EntryKey key : index_.tiers().ram().next_victims(bytes, true).keys) {
    Record* r = index_.find_key(key);
    if (r && may_spill(*r)) ask(*r);
  }
  pump();
  return records_.queue_bytes() > 0;
}

void Spiller::pump() {
  if (!lane_) return;
  if (writing_ && writing_->state == SpillBatch::State::records) begin_writing(writing_);
  if (packing_ && packing_->state == SpillBatch::State::packed && !writing_) {
    begin_writing(std::exchange(packing_, nullptr));
  }
  if (packing_) return;
  arm_retry();
  refill_queue();
  if (records_.first(Disk::queued) && !hold()) start_batch();
}

void Spiller::refill_queue() {
  while (Record* r = records_.first(Disk::waiting)) {
    Asked asked = ask(*r);
    if (asked == Asked::waits) return;
    if (asked == Asked::in_vain) records_.forget_wait(*r);
  }
}

void Spiller::file_lost(Record& record) {
  const bool again = record.ram && record.on_ssd();
  records_.lost(record);
  if (!again) return;
  ask(record);
  env_.progress();
}

// Retries.

void Spiller::fail(Record& record) {
  ++env_.count.spills_failed;
  records_.fail_write(record);
  arm_retry();
}

// One of those that failed, to see whether the device is well; if others were written meanwhile,
// all of them.
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

// The write budget: spills wait for it, and while they do, what was reused goes first.

// True if nothing may be written now; what waits is asked again when something may.
bool Spiller::hold() {
  if (!budget_.limited()) return false;
  if (writing_) return true;  // what it writes counts first
  auto now = Clock::now(), at = budget_.next(now);
  if (at <= now) {
    order_by_use();
    return false;
  }
  if (budget_timer_.armed()) return true;
  budget_timer_.arm_at(at);
  ++env_.count.spills_held;
  env_.progress();
  return true;
}

bool Spiller::held_up() const {
  auto now = Clock::now();
  return lane_.hangs() || (budget_.limited() && budget_.next(now) > now + env_.options.room_wait);
}

// An object counts as much as the most used one that rests on it, so parents stay before children.
void Spiller::order_by_use() {
  std::map<const Record*, uint32_t> uses;
  for (const Record& queued : records_.all(Disk::queued)) {
    Record* at = index_.find(queued.name);
    for (; at && at->disk == Disk::queued; at = parent_of(*at)) {
      auto [it, fresh] = uses.try_emplace(at, queued.uses);
      if (!fresh && it->second >= queued.uses) break;
      it->second = queued.uses;
    }
  }
  records_.order_queue([&](const Record& a, const Record& b) { return uses.at(&a) > uses.at(&b); });
}

void Spiller::charge_writes() {
  uint64_t written = lane_.ssd()->stats().device_bytes_written;
  budget_.spent(written - std::min(written, charged_), Clock::now());
  charged_ = written;
  lane_.keep_hours(budget_.kept(Clock::now(), wall_now()));
}

std::chrono::system_clock::time_point Spiller::wall_now() const {
  return env_.options.wall_clock ? env_.options.wall_clock() : std::chrono::system_clock::now();
}

// The budget of a store that has files but no state (its catalog was lost) begins as spent. A
// process that was killed wrote more than it kept: at least what lies in the files of each hour.
void Spiller::restore_budget(const Recovery& found) {
  auto wall = wall_now();
  HourBytes written = found.written;
  bool files = found.rows_used + found.adopted + found.unread + found.other_key_files > 0;
  HourBytes more;
  if (found.state)
    more = found.state->written;
  else if (files)
    more = budget_.all_spent(wall);
  for (const auto& [hour, bytes] : more) written[hour] = std::max(written[hour], bytes);
  budget_.restore(written, Clock::now(), wall);
  lane_.keep_hours(budget_.kept(Clock::now(), wall));
  bool known = found.state && (more.empty() || more.rbegin()->first <= WriteBudget::hour_of(wall));
  if (!known) (void)lane_.ssd()->checkpoint();  // from now on it is
}

}  // namespace kv
