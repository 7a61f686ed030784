// Batches and windows of reads. See hit_reads.h.
#include "cachesvc/core/hit_reads.h"

#include <algorithm>

namespace kv {

struct HitReads::Batch {
  Pins pins;                       // objects in RAM already make no room for the rest
  std::vector<PinnedName> wanted;  // reads from `next` on have not begun
  size_t next = 0;
  size_t left = 0;      // reads of this window that run, and the window itself
  uint64_t window = 0;  // bytes left for file and unpacked bytes
  std::shared_ptr<RoomCharges> room;
  std::function<void()> then;
};

// Packed files first, so that they are unpacked while the others are read; but root first if there
// are several windows, so that objects read serve even if the rest can't be read.
std::vector<Record*> HitReads::missing(const RunningFetch& f, const Hit& hit,
                                       const FetchCost& cost) const {
  std::vector<Record*> out;
  for (const Hit::Use& u : hit.uses) {
    if (!u.record->ram && !coming(f, *u.record)) out.push_back(u.record);
  }
  if (cost.reading <= f.window_bytes) {
    std::stable_partition(out.begin(), out.end(),
                          [](const Record* r) { return r->file.bytes < r->payload_bytes; });
  }
  return out;
}

void HitReads::read(const RunningFetchPtr& f, const Hit& hit, const FetchCost& cost, Pins pins,
                    std::function<void()> then) {
  const std::vector<Record*> wanted = missing(*f, hit, cost);
  if (wanted.empty()) return pins.release();
  auto batch = std::make_shared<Batch>();
  for (const Record* r : wanted) {
    batch->wanted.push_back({r->name, r->serial});
    coming_.insert(r->name);
  }
  batch->pins = std::move(pins);
  batch->then = std::move(then);
  Room room;
  room.share = f->realm->share;
  room.stored = cost.missing;
  room.promotion = room.stored > 0 ? f->window_bytes : 0;
  if (wanted.size() <= kObjectsAtATime) return ask_for_room(f, batch, room);
  env_.later([this, f, batch, room] { ask_for_room(f, batch, room); });
}

void HitReads::ask_for_room(const RunningFetchPtr& f, const BatchPtr& batch, Room room) {
  f->step_began = Clock::now();
  room_.with_room(
      room, f->deadline,
      [this, f, batch](Result<std::shared_ptr<RoomCharges>> got) {
        f->step_ended(&RequestRecord::wait_us);
        if (got.ok()) {
          batch->room = *got;
          return begin_window(f, batch);
        }
        f->no_room(got.status());
        came(*batch);
        batch->pins.release();
        batch->then();
      },
      f->asker());
}

// The batch ends: it has brought its objects, or will not.
void HitReads::came(const Batch& batch) {
  for (const PinnedName& each : batch.wanted) coming_.erase(coming_.find(each.name));
}

void HitReads::begin_window(const RunningFetchPtr& f, const BatchPtr& batch) {
  f->step_began = Clock::now();
  batch->left = 1;
  batch->window = batch->room->promotion.bytes();
  begin_reads(f, batch);
}

// Begins some reads in each handler: a long prompt has hundreds.
void HitReads::begin_reads(const RunningFetchPtr& f, const BatchPtr& batch) {
  auto one_done = [this, f, batch](Status) { read_done(f, batch); };
  for (size_t begun = 0; batch->next < batch->wanted.size() && !f->unwanted() && !promoter_.hangs();
       ++batch->next) {
    if (begun == kObjectsAtATime) return env_.later([this, f, batch] { begin_reads(f, batch); });
    Record* r = index_.find(batch->wanted[batch->next]);
    if (!r || r->ram || !r->on_ssd()) continue;
    ++begun;
    if (promoter_.promoting(*r)) {
      promoter_.join(*r, one_done);
      ++batch->left;
      continue;
    }
    Room need = Promoter::room_for(*r);
    bool fits = need.promotion <= batch->window && need.stored <= batch->room->stored.bytes();
    if (!fits && batch->left > 1) break;  // the next window's
    if (!fits) continue;  // another call's read of it had failed: the next step plans for it
    batch->window -= need.promotion;
    // Charge(): the window pays for the promotion.
    promoter_.promote(*r, batch->room->stored.split(need.stored), Charge(), one_done, batch->room);
    ++batch->left;
  }
  read_done(f, batch);  // the window itself
}

void HitReads::read_done(const RunningFetchPtr& f, const BatchPtr& batch) {
  if (--batch->left > 0) return;
  f->step_ended(&RequestRecord::read_us);
  bool stop = promoter_.hangs() || f->unwanted();
  if (batch->next < batch->wanted.size() && !stop) return begin_window(f, batch);
  batch->room->stored.release();  // a read that hangs keeps the window, not the rest of the path
  batch->room.reset();
  came(*batch);
  if (batch->wanted.size() <= kObjectsAtATime) {
    batch->pins.release();
    return batch->then();
  }
  keep(env_, std::move(batch->pins)).reset();  // in steps
  env_.later([batch] { batch->then(); });
}

}  // namespace kv
