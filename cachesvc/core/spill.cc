// spill: RAM to SSD, root first, in batches: packed on workers, written one batch at a time, the
// next one packed meanwhile. An object is written only when its parent is on the SSD or earlier in
// the batch.
#include <algorithm>

#include "cachesvc/core/impl.h"
#include "codec/lossless.h"

namespace kv {

namespace {

using Image = std::shared_ptr<const FileImage>;  // large, and never copied on the loop

}  // namespace

struct CacheCore::Impl::SpillItem {
  PinnedName which;
  RamObject object;
  Image image;       ///< null: not packed
  bool raw = false;  ///< no room to pack it
  bool damaged = false;
  bool again = false;  ///< the SSD was full
};

struct CacheCore::Impl::SpillBatch {
  std::vector<SpillItem> items;
  Pins pins;
  Charge scratch;        ///< for packed bytes
  size_t unpacked = 0;   ///< items whose packing is under way
  bool codes = false;    ///< are packed too
  bool retried = false;  ///< the SSD was full once
  bool waiting = false;  ///< for a profile and model record that are being written
  std::set<ModelState*> records_tried;
};

namespace {

constexpr Milliseconds kWithoutMemory{10};  // before the next try
constexpr uint64_t kScarceShare = 4;        // the SSD is scarce with less than limit / 4 left
constexpr size_t kSyncedAtATime = 64;       // records of one handler
// Payload bytes of a batch, and one object more: what a slow device writes in seconds.
constexpr uint64_t kSpillBatchBytes = 64u << 20;

struct Packed {
  Image image;
  bool intact = false;
};

template <typename Items>
std::vector<Image> images_of(const Items& items) {
  std::vector<Image> images;
  for (const auto& item : items) images.push_back(item.image);
  return images;
}

// Worker.
std::vector<FileImage> copies(const std::vector<Image>& images) {
  std::vector<FileImage> out;
  out.reserve(images.size());
  for (const Image& image : images) out.push_back(*image);
  return out;
}

// Of rows and states that are not coded.
uint64_t exact_bytes(const Object& object) {
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) bytes += p.bits == 0 ? p.bytes.size() : 0;
  for (const StateBlob& s : object.states) bytes += s.bytes.size();
  return bytes;
}

// Worker. Planes and states one by one, packed where it pays. What a state's values are nobody
// says: of four bytes each, those of two split well too.
FileImage packed_image(const Object& object, bool pack_codes) {
  FileImage image = raw_image(object);
  for (size_t i = 0; i < image.pieces.size(); ++i) {
    Piece& piece = image.pieces[i];
    const Plane* plane = i < object.planes.size() ? &object.planes[i] : nullptr;
    const bool codes = plane != nullptr && plane->bits != 0;
    if (codes && !pack_codes) continue;
    auto packed = codes ? pack(piece.bytes.span())
                        : pack_split(piece.bytes.span(), plane ? dtype_bytes(plane->dtype) : 4);
    if (!packed) continue;
    piece.packing = codes ? Packing::zstd : Packing::split;
    piece.bytes = Bytes::adopt(std::move(*packed));
  }
  return image;
}

}  // namespace

CacheCore::Impl::Asked CacheCore::Impl::enqueue_spill(Record& record) {
  if (!ssd_ || !record.realm) return Asked::in_vain;
  auto on_its_way = [](const Record& r) {
    return r.on_ssd() || r.disk == Disk::queued || r.disk == Disk::writing;
  };
  if (on_its_way(record)) return Asked::on_its_way;
  // Its ancestors first; a hole among them means that nobody could ever reach it.
  std::vector<Record*> way;
  Record* at = &record;
  while (at && !on_its_way(*at)) {
    if (!at->ram) return Asked::in_vain;
    way.push_back(at);
    bool root =
        at->realm->tree.parent(at->node) == kRootNode && at->name.kind != ObjectKind::supplement;
    if (at->name.kind == ObjectKind::snapshot) root = at->node == kRootNode;
    if (root) break;
    at = index_.parent_of(*at);
    if (!at) {
      ++count_.spills_dropped;
      return Asked::in_vain;
    }
  }
  for (auto it = way.rbegin(); it != way.rend(); ++it) {
    Record& r = **it;
    // Into an empty queue anything goes, so that nothing waits for ever.
    const uint64_t bytes = records_.queue_bytes();
    if (bytes > 0 && bytes + r.payload_bytes > options_.spill_queue_bytes) {
      if (record.disk != Disk::waiting) ++count_.spills_deferred;
      records_.wait(record);
      return Asked::waits;
    }
    records_.enqueue(r);
    ++count_.spills_queued;
  }
  return Asked::on_its_way;
}

// What nobody could ever reach stays where it is.
void CacheCore::Impl::queue_dirty() {
  std::vector<Record*> absent;
  absent.reserve(records_.count(Disk::absent));
  for (const Record& r : records_.all(Disk::absent)) absent.push_back(index_.find(r.name));
  for (Record* r : absent) enqueue_spill(*r);
  some_unqueued_ = false;
}

void CacheCore::Impl::refill_spill_queue() {
  while (Record* r = records_.first(Disk::waiting)) {
    Asked asked = enqueue_spill(*r);
    if (asked == Asked::waits) return;
    if (asked == Asked::in_vain) records_.forget_wait(*r);
  }
}

// `name` null: what is not of one object.
void CacheCore::Impl::write_failed(const ObjectName* name, const Status& status) const noexcept {
  bool full = status.code() == StatusCode::resource_exhausted;
  event(full ? EventKind::ssd_full : EventKind::write_failed, [&] {
    return (name ? file_name(*name) : "folders and records") + ": " + status.message();
  });
}

void CacheCore::Impl::spill_failed(Record& record) noexcept {
  ++count_.spills_failed;
  records_.fail_write(record);
  (void)if_memory([&] { schedule_spill_retry(); });  // or the next pump_spill
}

// One of those that failed, to see whether the device is well; if others were written meanwhile,
// all of them.
void CacheCore::Impl::schedule_spill_retry() {
  if (closed_ || draining_ || retry_timer_ || !records_.first(Disk::failed)) return;
  auto timer = std::make_unique<boost::asio::steady_timer>(loop_, options_.io_backoff);
  timer->async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (error || !self || self->closed_) return;
    self->retry_timer_.reset();
    size_t most = std::exchange(self->spills_work_, false) ? SIZE_MAX : 1;
    (void)if_memory([&] { self->retry_spills(most); });
    self->pump_spill();
  });
  retry_timer_ = std::move(timer);
}

void CacheCore::Impl::retry_spills(size_t most) {
  for (size_t tried = 0; tried < most; ++tried) {
    Record* r = records_.first(Disk::failed);
    if (!r) return;
    records_.wait(*r);
  }
}

// Without memory the queue stays as it is until the batch that is being written has ended, or a
// while; where not even a timer can be had it is given up.
void CacheCore::Impl::pump_spill() noexcept {
  if (closed_ || packing_) return;
  try {
    schedule_spill_retry();
    refill_spill_queue();
    if (records_.first(Disk::queued) && !hold_spills()) start_batch();
    if (some_unqueued_) pump_later();
  } catch (const std::bad_alloc&) {
    if (!writing_) pump_later();
  }
}

void CacheCore::Impl::pump_later() noexcept {
  if (spill_timer_armed_) return;
  try {
    spill_timer_->expires_after(kWithoutMemory);
    spill_timer_->async_wait([weak = weak_from_this()](boost::system::error_code error) {
      auto self = weak.lock();
      if (error || !self || self->closed_) return;
      self->spill_timer_armed_ = false;
      if (self->some_unqueued_) (void)if_memory([&] { self->queue_dirty(); });
      self->go_on_spilling();
    });
    spill_timer_armed_ = true;
  } catch (const std::bad_alloc&) {
    if (!records_.first(Disk::queued)) return;
    spills_lacked_memory_ = true;
    while (Record* r = records_.first(Disk::queued)) spill_failed(*r);
    spill_wake_->ask();
  }
}

void CacheCore::Impl::start_batch() {
  auto batch = std::make_shared<SpillBatch>();
  batch->codes = packs_codes();
  std::vector<Record*> keep;
  uint64_t bytes = 0, payload = 0;
  std::set<const Record*> later;  // a file of the name is to go first; so for what hangs on it
  for (const Record& queued : records_.all(Disk::queued)) {
    const size_t items = batch->items.size();
    if (items == options_.spill_batch_files) break;
    if (items > 0 && payload + queued.payload_bytes > kSpillBatchBytes) break;
    Record* r = index_.find(queued.name);
    if (!unlinking_.empty() &&
        (unlinking_.contains(r->name) || later.contains(index_.parent_of(*r)))) {
      later.insert(r);
      continue;
    }
    batch->items.push_back({{r->name, r->serial}, r->ram, {}});
    payload += r->payload_bytes;
    bytes += batch->codes ? r->payload_bytes : exact_bytes(*r->ram);
    keep.push_back(r);
    if (Record* parent = index_.parent_of(*r)) keep.push_back(parent);
  }
  if (batch->items.empty()) return;  // the end of an unlink goes on
  batch->pins = pin_all(keep);
  for (const SpillItem& item : batch->items) records_.begin_write(*find_pinned(item.which));
  packing_ = batch;
  auto scratch = pool_->try_charge(ChargeKind::spill, bytes);
  if (scratch) batch->scratch = std::move(*scratch);
  for (auto& item : batch->items) item.raw = !scratch;
  pack_batch(batch);
}

bool CacheCore::Impl::packs_codes() const {
  if (options_.pack_codes != PackCodes::scarce) return options_.pack_codes == PackCodes::always;
  return options_.write_bytes_per_second > 0 || options_.write_bytes_per_day > 0 ||
         ssd_->room_left() < options_.ssd_limit_bytes / kScarceShare;
}

void CacheCore::Impl::pack_batch(std::shared_ptr<SpillBatch> batch) {
  auto packed = [this, batch] {
    if (--batch->unpacked == 0 && !writing_) write_batch(batch);
  };
  batch->unpacked = batch->items.size();
  for (size_t i = 0; i < batch->items.size(); ++i) {
    const SpillItem& item = batch->items[i];
    try {
      on_worker(
          [object = item.object, raw = item.raw, codes = batch->codes]() -> Result<Packed> {
            FileImage image = raw ? raw_image(*object) : packed_image(*object, codes);
            // What was packed was right, if it is now.
            return Packed{std::make_shared<const FileImage>(std::move(image)), intact(object)};
          },
          [this, batch, i, packed](Result<Packed> made) {
            SpillItem& packed_item = batch->items[i];
            if (made.ok()) {
              ++count_.ram_verified;
              packed_item.image = std::move(made->image);
              packed_item.damaged = !made->intact;
              Record* r = made->intact ? nullptr : find_pinned(packed_item.which);
              if (r) lose_ram(*r);
            }
            packed();
          });
    } catch (const std::bad_alloc&) {
      packed();
    }
  }
}

void CacheCore::Impl::fail_batch(std::shared_ptr<SpillBatch> batch) noexcept {
  if (packing_ == batch) packing_.reset();
  spills_lacked_memory_ = true;
  for (const SpillItem& item : batch->items) {
    Record* r = find_pinned(item.which);
    if (r && r->disk == Disk::writing) spill_failed(*r);
  }
  finish_batch(batch);
}

// A profile and a model record are on the SSD before the first object that names them. True if they
// are being written: whoever writes them goes on with the batch. Tried once for each batch.
bool CacheCore::Impl::wait_for_records(SpillBatch& batch) {
  batch.waiting = false;
  for (const SpillItem& item : batch.items) {
    Record* r = find_pinned(item.which);
    ModelState* model = r ? model_state(*r) : nullptr;
    if (!model || model->records_durable) continue;
    if (!model->records_writing && batch.records_tried.insert(model).second) write_records(*model);
    batch.waiting |= model->records_writing;
  }
  return batch.waiting;
}

// Null: nothing of its model was opened or found.
ModelState* CacheCore::Impl::model_state(const Record& record) {
  auto it = models_.find({record.realm->realm.ns, record.realm->realm.fingerprint});
  return it == models_.end() ? nullptr : it->second.get();
}

// Whether they could be written or not: what waited for them goes on.
void CacheCore::Impl::records_written() noexcept {
  if (writing_ && writing_->waiting) write_batch(writing_);
  check_commit_waits();
  pump_spill();
  check_drained();
}

// The batch is packed: from here on it is the one being written, and the next may be packed.
void CacheCore::Impl::write_batch(std::shared_ptr<SpillBatch> batch) noexcept {
  if (!if_memory([&] { write_step(batch); })) fail_batch(batch);
}

void CacheCore::Impl::write_step(std::shared_ptr<SpillBatch> batch) {
  if (packing_ == batch) {
    packing_.reset();
    writing_ = batch;
    spill_wake_->ask();
  }
  if (wait_for_records(*batch)) return;
  std::vector<SpillItem> items;
  std::set<Record*> earlier;
  for (SpillItem& item : batch->items) {
    Record* r = find_pinned(item.which);
    if (!r || r->disk != Disk::writing || item.damaged) continue;  // erased, or damaged
    Record* parent = index_.parent_of(*r);
    ModelState* model = model_state(*r);
    bool reachable = !parent || parent->on_ssd() || earlier.count(parent);
    if (!reachable || !model || !model->records_durable || !item.image) {
      spills_lacked_memory_ |= !item.image;
      spill_failed(*r);
      continue;
    }
    earlier.insert(r);
    items.push_back(std::move(item));
  }
  batch->items = std::move(items);
  if (batch->items.empty()) return finish_batch(batch);
  struct Attempt {
    uint64_t short_by = 0;
    std::vector<PutResult> results;
  };
  on_ssd(
      [ssd = ssd_, images = images_of(batch->items)]() -> Result<Attempt> {
        uint64_t needed = 0, left = ssd->room_left();
        for (const Image& image : images) needed += ssd->room_needed(*image);
        if (needed > left) return Attempt{needed - left, {}};
        return Attempt{0, ssd->put(copies(images), Durability::spilled)};
      },
      [this, batch](Result<Attempt> attempt) {
        if (!attempt.ok()) return batch_written(batch, attempt.status());
        if (attempt->short_by == 0) return batch_written(batch, std::move(attempt->results));
        bool under_way = if_memory([&] { write_in_place(batch, attempt->short_by); });
        if (!under_way) fail_batch(batch);
      });
}

// As the first attempt, with others' room.
void CacheCore::Impl::write_in_place(std::shared_ptr<SpillBatch> batch, uint64_t short_by) {
  // What was erased meanwhile must not be written after its unlink.
  std::erase_if(batch->items, [this](const SpillItem& item) { return !find_pinned(item.which); });
  if (batch->items.empty()) return finish_batch(batch);
  auto job = [ssd = ssd_, images = images_of(batch->items)]() -> Result<std::vector<PutResult>> {
    return ssd->put(copies(images), Durability::spilled);
  };
  on_ssd_with_room(short_by, std::move(job), [this, batch](Result<std::vector<PutResult>> results) {
    batch_written(batch, std::move(results));
  });
}

// Takes at least `bytes` of least recently used leaves off the SSD's index; the caller has the task
// ready that unlinks them.
std::vector<ObjectName> CacheCore::Impl::ssd_victims(uint64_t bytes) {
  std::vector<ObjectName> names;
  auto victims = index_.ssd().next_victims(bytes, true);
  if (victims.keys.empty()) return names;
  names.reserve(victims.keys.size());
  for (EntryKey key : victims.keys) {
    Record* r = index_.find_key(key);
    KV_CHECK(r && r->on_ssd());
    note_loss(r->name);
    names.push_back(r->name);
  }
  event(
      EventKind::ssd_evicted, [] { return ""; }, victims.keys.size());
  for (EntryKey key : victims.keys) {
    Record* r = index_.find_key(key);
    ++count_.ssd_evicted;
    records_.lost(*r, true);  // what had to go is not written again at once
  }
  return names;
}

void CacheCore::Impl::batch_written(std::shared_ptr<SpillBatch> batch,
                                    Result<std::vector<PutResult>> results) noexcept {
  (void)if_memory([&] { charge_writes(); });  // or with the next batch
  if (!results.ok()) return fail_batch(batch);
  uint64_t needed = 0;
  auto result = results->begin();
  for (SpillItem& item : batch->items) {
    bool full = result->status.code() == StatusCode::resource_exhausted && !batch->retried;
    item.again = full && find_pinned(item.which);
    if (item.again)
      needed += ssd_->room_needed(*item.image);
    else
      item_written(item, *result);
    ++result;
  }
  if (needed == 0) return finish_batch(batch);
  std::erase_if(batch->items, [](const SpillItem& item) { return !item.again; });
  batch->retried = true;
  auto again = [this, batch](Status) { write_batch(batch); };
  auto make_room = [&] {
    on_ssd_with_room(
        needed, [] { return Status(); }, again);
  };
  if (!if_memory(make_room)) fail_batch(batch);
}

// Its bytes could not be written anew. The file that was there is as good as before, unless the
// write found it damaged and moved it away.
void CacheCore::Impl::check_old_file(const Record& record) {
  if (record.file_bytes == 0) return;
  PinnedName which{record.name, record.serial};
  on_ssd([ssd = ssd_, name = record.name] { return ssd->read(name).status(); },
         [this, which](Status status) {
           bool gone =
               status.code() == StatusCode::not_found || status.code() == StatusCode::corruption;
           Record* r = gone ? find_pinned(which) : nullptr;
           if (r && !r->verified()) lose(*r);
         });
}

void CacheCore::Impl::item_written(const SpillItem& item, const PutResult& result) noexcept {
  Record* r = find_pinned(item.which);
  if (!r) return;  // erased meanwhile: its unlink is queued behind this write
  if (result.reached == Durability::none) {
    write_failed(&item.which.name, result.status);
    spills_lacked_memory_ |= result.status.code() == StatusCode::busy;
    (void)if_memory([&] { check_old_file(*r); });  // or its next read finds it
    if (r->disk == Disk::writing) spill_failed(*r);
    return;
  }
  const bool stands = r->disk == Disk::writing || r->disk == Disk::known;  // known: lost by RAM
  bool noted =
      !stands || if_memory([&] { records_.written(*r, result.reached, result.allocated_bytes); });
  if (!noted) {  // its file is an old one, then, until it is written or evicted again
    records_.old_file(*r, result.allocated_bytes);
    spills_lacked_memory_ = true;
    return spill_failed(*r);
  }
  spills_work_ = true;
  ++count_.spills_written;
  count_.spill_raw_bytes += item.image->unpacked_bytes();
  count_.spill_packed_bytes += item.image->stored_bytes();
}

void CacheCore::Impl::finish_batch(std::shared_ptr<SpillBatch> batch) noexcept {
  batch->pins.release();
  free_on(workers_, std::pair(std::move(batch->scratch), std::exchange(batch->items, {})));
  if (writing_ == batch) writing_.reset();
  if (records_.count(Disk::renamed) > kMaxBatchFiles * 64) (void)if_memory([&] { run_sync(); });
  check_commit_waits();
  if (packing_ && packing_->unpacked == 0 && !writing_) write_batch(packing_);
  pump_spill();
  room_wake_->ask();
  check_drained();
}

void CacheCore::Impl::schedule_sync() {
  if (syncing_ || sync_timer_) return;
  auto timer = std::make_unique<boost::asio::steady_timer>(loop_, options_.durable_group_delay);
  timer->async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (error || !self || self->closed_) return;
    self->sync_timer_.reset();
    if (!if_memory([&] { self->run_sync(); })) self->pump_later();
  });
  sync_timer_ = std::move(timer);
}

// One sync for all that was spilled until now.
void CacheCore::Impl::run_sync() {
  if (syncing_ || !ssd_) return;
  const uint64_t sync = records_.syncs() + 1;
  on_ssd([ssd = ssd_] { return ssd->sync(); },
         [this, sync](Status status) {
           if (status.ok()) return synced(sync);
           ++failed_syncs_;
           write_failed(nullptr, status);
           end_sync();
         });
  syncing_ = true;
  records_.begin_sync();
}

// Some at a time: after a start they are all there is.
void CacheCore::Impl::synced(uint64_t sync) noexcept {
  bool all = records_.synced(sync, kSyncedAtATime);
  if (!all && if_memory([&] { later([this, sync] { synced(sync); }); })) return;
  end_sync();  // without memory the others wait for the next sync
}

void CacheCore::Impl::end_sync() noexcept {
  syncing_ = false;
  check_commit_waits();
  check_drained();
}

// Its bytes leave RAM. Recency is advice: without memory, or to a device that hangs, it isn't told.
void CacheCore::Impl::tell_use(Record& record) noexcept {
  if (!ssd_ || !record.use_untold || !record.on_ssd() || writes_hang()) return;
  if (!recency_.take(Clock::now())) return;
  record.use_untold = false;
  (void)if_memory([&] {
    on_ssd(
        [ssd = ssd_, name = record.name] {
          ssd->touch({&name, 1});
          return true;
        },
        [](bool) {});
  });
}

// The most recent ones, in their order.
void CacheCore::Impl::tell_last_uses() {
  if (writes_hang()) return;
  std::vector<std::pair<uint64_t, Record*>> uses;
  for (Disk state : {Disk::known, Disk::renamed, Disk::durable}) {
    for (const Record& r : records_.all(state)) {
      if (r.use_untold) uses.emplace_back(index_.ssd().recency(r.key), index_.find(r.name));
    }
  }
  std::sort(uses.begin(), uses.end());
  if (uses.size() > Recency::kRowsAtEnd) uses.erase(uses.begin(), uses.end() - Recency::kRowsAtEnd);
  std::vector<ObjectName> names;
  for (auto& [recency, record] : uses) {
    record->use_untold = false;
    names.push_back(record->name);
  }
  if (names.empty()) return;
  on_ssd(
      [ssd = ssd_, names = std::move(names)] {
        ssd->touch(names);
        return true;
      },
      [](bool) {});
}

}  // namespace kv
