// spill: RAM to SSD, root first, in batches: packed on workers, written one batch at a time, the
// next one packed meanwhile. An object is written only when its parent is on the SSD or earlier in
// the batch.
#include <algorithm>

#include "cachesvc/cache_core_impl.h"
#include "codec/lossless.h"

namespace kv {

struct CacheCore::Impl::SpillItem {
  PinnedName which;
  RamObject object;
  FileImage image;
  bool raw = false;  ///< no room to pack it
  bool damaged = false;
};

struct CacheCore::Impl::SpillBatch {
  std::vector<SpillItem> items;
  std::vector<PinnedName> pins;
  Charge scratch;        ///< for packed bytes
  size_t unpacked = 0;   ///< items whose packing is under way
  bool retried = false;  ///< the SSD was full once
  bool waiting = false;  ///< for a profile and model record that are being written
  std::set<ModelState*> records_tried;
};

namespace {

struct Packed {
  FileImage image;
  bool intact = false;
};

// Ends a value there: the system takes milliseconds to get megabytes back.
template <typename Executor, typename T>
void free_on(Executor& executor, T value) try {
  auto shared = std::make_shared<T>(std::move(value));
  boost::asio::post(executor, [shared = std::move(shared)]() mutable { shared.reset(); });
} catch (const std::bad_alloc&) {  // here, then
}

// Worker. Planes and states one by one, packed where it pays. What a state's values are nobody
// says: of four bytes each, those of two split well too.
FileImage packed_image(const Object& object) {
  FileImage image = raw_image(object);
  for (size_t i = 0; i < image.pieces.size(); ++i) {
    Piece& piece = image.pieces[i];
    const Plane* plane = i < object.planes.size() ? &object.planes[i] : nullptr;
    const bool codes = plane != nullptr && plane->bits != 0;
    auto packed = codes ? pack(piece.bytes.span())
                        : pack_split(piece.bytes.span(), plane ? dtype_bytes(plane->dtype) : 4);
    if (!packed) continue;
    piece.packing = codes ? Packing::zstd : Packing::split;
    piece.bytes = Bytes::adopt(std::move(*packed));
  }
  return image;
}

}  // namespace

bool CacheCore::Impl::enqueue_spill(Record& record) {
  if (!ssd_ || !record.realm) return false;
  if (record.on_ssd() || record.spill_queued) return true;
  // Its ancestors first; a hole among them means that nobody could ever reach it.
  std::vector<Record*> way;
  Record* at = &record;
  while (at && !at->on_ssd() && !at->spill_queued) {
    if (!at->ram) return false;
    way.push_back(at);
    bool root = at->realm->tree.parent(at->node) == kRootNode &&
                at->name.kind != ObjectKind::supplement;
    if (at->name.kind == ObjectKind::snapshot) root = at->node == kRootNode;
    if (root) break;
    at = index_.parent_of(*at);
    if (!at) {
      ++count_.spills_dropped;
      return false;
    }
  }
  for (auto it = way.rbegin(); it != way.rend(); ++it) {
    Record& r = **it;
    // Into an empty queue anything goes, so that nothing waits for ever.
    if (spill_queue_bytes_ > 0 &&
        spill_queue_bytes_ + r.payload_bytes > options_.spill_queue_bytes) {
      defer_spill(record);
      return false;
    }
    r.spill_queued = true;
    spill_queue_bytes_ += r.payload_bytes;
    spill_queue_.push_back({r.name, r.serial});
    ++count_.spills_queued;
  }
  return true;
}

void CacheCore::Impl::defer_spill(Record& record) {
  if (std::exchange(record.spill_deferred, true)) return;
  ++count_.spills_deferred;
  spill_backlog_.push_back({record.name, record.serial});
}

void CacheCore::Impl::refill_spill_queue() {
  while (!spill_backlog_.empty()) {
    Record* r = find_pinned(spill_backlog_.front());
    spill_backlog_.pop_front();
    if (!r) continue;  // erased or evicted
    r->spill_deferred = false;
    if (!r->dirty() || r->spill_refused) continue;
    if (!enqueue_spill(*r) && r->spill_deferred) return;  // still full
  }
}

void CacheCore::Impl::write_failed(const std::string& what, const Status& status) const {
  bool full = status.code() == StatusCode::resource_exhausted;
  event(full ? EventKind::ssd_full : EventKind::write_failed, what + ": " + status.message());
}

void CacheCore::Impl::spill_failed(Record& record) {
  ++count_.spills_failed;
  spill_queue_bytes_ -= record.payload_bytes;
  record.spill_refused = true;
  record.spill_queued = false;
  if (!std::exchange(record.spill_retries, true)) {
    failed_spills_.push_back({record.name, record.serial});
  }
  schedule_spill_retry();
}

// One of those that failed, to see whether the device is well; if others were written meanwhile,
// all of them.
void CacheCore::Impl::schedule_spill_retry() {
  if (closed_ || draining_ || retry_timer_) return;
  retry_timer_ = std::make_unique<boost::asio::steady_timer>(loop_, options_.io_backoff);
  retry_timer_->async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (error || !self || self->closed_) return;
    self->retry_timer_.reset();
    self->retry_spills(std::exchange(self->spills_work_, false) ? SIZE_MAX : 1);
    if (!self->failed_spills_.empty()) self->schedule_spill_retry();
    self->pump_spill();
  });
}

void CacheCore::Impl::retry_spills(size_t most) {
  for (size_t tried = 0; tried < most && !failed_spills_.empty();) {
    Record* r = find_pinned(failed_spills_.front());
    failed_spills_.pop_front();
    if (!r) continue;  // erased or evicted
    r->spill_retries = false;
    if (!r->dirty() || r->spill_queued) continue;  // a commit asked for it meanwhile
    r->spill_refused = false;
    defer_spill(*r);
    ++tried;
  }
}

void CacheCore::Impl::pump_spill() {
  if (closed_ || packing_) return;
  refill_spill_queue();
  if (spill_queue_.empty() || hold_spills()) return;
  auto batch = std::make_shared<SpillBatch>();
  std::vector<Record*> keep;
  uint64_t bytes = 0;
  while (!spill_queue_.empty() && batch->items.size() < options_.spill_batch_files) {
    PinnedName which = spill_queue_.front();
    Record* r = find_pinned(which);
    spill_queue_.pop_front();
    if (!r || !r->ram) continue;  // erased or evicted meanwhile; their bytes were taken off then
    batch->items.push_back({which, r->ram, {}});
    bytes += r->payload_bytes;
    keep.push_back(r);
    if (Record* parent = index_.parent_of(*r)) keep.push_back(parent);
  }
  if (batch->items.empty()) return;
  batch->pins = pin_all(keep);
  packing_ = batch;
  auto scratch = pool_->try_charge(ChargeKind::spill, bytes);
  if (scratch) batch->scratch = std::move(*scratch);
  for (auto& item : batch->items) item.raw = !scratch;
  pack_batch(batch);
}

void CacheCore::Impl::pack_batch(std::shared_ptr<SpillBatch> batch) {
  batch->unpacked = batch->items.size();
  for (size_t i = 0; i < batch->items.size(); ++i) {
    const SpillItem& item = batch->items[i];
    on_worker([object = item.object, raw = item.raw]() -> Packed {
      FileImage image = raw ? raw_image(*object) : packed_image(*object);
      return {std::move(image), intact(object)};  // what was packed was right, if it still is
    }, [this, batch, i](Packed packed) {
      SpillItem& packed_item = batch->items[i];
      ++count_.ram_verified;
      packed_item.image = std::move(packed.image);
      packed_item.damaged = !packed.intact;
      Record* r = packed.intact ? nullptr : find_pinned(packed_item.which);
      if (r) lose_ram(*r);
      if (--batch->unpacked == 0 && !writing_) write_batch(batch);
    });
  }
}

// A profile and a model record are on the SSD before the first object that names them. True if they
// are being written: whoever writes them goes on with the batch. Tried once for each batch.
bool CacheCore::Impl::wait_for_records(SpillBatch& batch) {
  batch.waiting = false;
  for (const SpillItem& item : batch.items) {
    Record* r = find_pinned(item.which);
    if (!r) continue;
    ModelState* model = models_.at({r->realm->realm.ns, r->realm->realm.fingerprint}).get();
    if (model->records_durable) continue;
    if (!model->records_writing && batch.records_tried.insert(model).second) write_records(*model);
    batch.waiting |= model->records_writing;
  }
  return batch.waiting;
}

// Whether they could be written or not: what waited for them goes on.
void CacheCore::Impl::records_written() {
  if (writing_ && writing_->waiting) write_batch(writing_);
  check_commit_waits();
  pump_spill();
  check_drained();
}

// The batch is packed: from here on it is the one being written, and the next may be packed.
void CacheCore::Impl::write_batch(std::shared_ptr<SpillBatch> batch) {
  if (packing_ == batch) {
    packing_.reset();
    writing_ = batch;
    later([this] { pump_spill(); });
  }
  if (wait_for_records(*batch)) return;
  std::vector<SpillItem> items;
  std::set<Record*> earlier;
  for (SpillItem& item : batch->items) {
    Record* r = find_pinned(item.which);
    if (!r || item.damaged) continue;  // erased, or its file is to serve
    Record* parent = index_.parent_of(*r);
    ModelState* model = models_.at({r->realm->realm.ns, r->realm->realm.fingerprint}).get();
    bool reachable = !parent || parent->on_ssd() || earlier.count(parent);
    if (!reachable || !model->records_durable) {
      spill_failed(*r);
      continue;
    }
    earlier.insert(r);
    items.push_back(std::move(item));
  }
  batch->items = std::move(items);
  if (batch->items.empty()) return finish_batch(batch);
  auto images = std::make_shared<std::vector<FileImage>>();
  for (const SpillItem& item : batch->items) images->push_back(item.image);
  struct Attempt {
    uint64_t short_by = 0;
    std::vector<PutResult> results;
  };
  on_ssd([ssd = ssd_, images]() -> Attempt {
    uint64_t needed = 0, left = ssd->room_left();
    for (const FileImage& image : *images) needed += ssd->room_needed(image);
    if (needed > left) return {needed - left, {}};
    return {0, ssd->put(*images, Durability::spilled)};
  }, [this, batch, images](Attempt attempt) {
    if (attempt.short_by == 0) {
      images->clear();  // the batch has them still, and is freed on a worker
      return batch_written(batch, std::move(attempt.results));
    }
    // What was erased meanwhile must not be written after its unlink.
    std::erase_if(batch->items, [this](const SpillItem& item) { return !find_pinned(item.which); });
    if (batch->items.empty()) return finish_batch(batch);
    images->clear();
    for (const SpillItem& item : batch->items) images->push_back(item.image);
    auto victims = ssd_victims(attempt.short_by);
    if (!victims.empty()) unlink(std::move(victims), [](Status) {});
    on_ssd([ssd = ssd_, images] {
      return ssd->put(*images, Durability::spilled);
    }, [this, batch](std::vector<PutResult> results) { batch_written(batch, std::move(results)); });
  });
}

// Takes at least `bytes` of least recently used leaves off the SSD's index; the caller unlinks
// them.
std::vector<ObjectName> CacheCore::Impl::ssd_victims(uint64_t bytes) {
  std::vector<ObjectName> names;
  auto victims = index_.ssd().next_victims(bytes, true);
  if (victims.keys.empty()) return names;
  event(EventKind::ssd_evicted, "", victims.keys.size());
  for (EntryKey key : victims.keys) {
    Record* r = index_.find_key(key);
    KV_CHECK(r && r->on_ssd());
    names.push_back(r->name);
    ++count_.ssd_evicted;
    r->spill_refused = true;  // what had to go is not written again at once
    lose(*r);
  }
  return names;
}

// Its bytes could not be written anew. The file that was there is as good as before, unless the
// write found it damaged and moved it away.
void CacheCore::Impl::check_known_file(const Record& record) {
  if (record.known_file_bytes == 0) return;
  PinnedName which{record.name, record.serial};
  on_ssd([ssd = ssd_, name = record.name] { return ssd->read(name).status(); },
         [this, which](Status status) {
    bool gone = status.code() == StatusCode::not_found || status.code() == StatusCode::corruption;
    if (Record* r = find_pinned(which); r && gone) r->known_file_bytes = 0;
  });
}

void CacheCore::Impl::batch_written(std::shared_ptr<SpillBatch> batch,
                                    std::vector<PutResult> results) {
  charge_writes();
  std::vector<SpillItem> again;
  uint64_t needed = 0;
  for (size_t i = 0; i < batch->items.size(); ++i) {
    SpillItem& item = batch->items[i];
    const PutResult& result = results[i];
    Record* r = find_pinned(item.which);
    if (!r) continue;  // erased meanwhile: its unlink is queued behind this write
    if (result.reached != Durability::none) {
      spill_queue_bytes_ -= r->payload_bytes;
      r->spill_queued = false;
      spills_work_ = true;
      index_.set_ssd(*r, result.reached, result.allocated_bytes, result.allocated_bytes);
      ++count_.spills_written;
      count_.spill_raw_bytes += item.image.unpacked_bytes();
      count_.spill_packed_bytes += item.image.stored_bytes();
      if (result.reached == Durability::spilled) unsynced_.push_back(item.which);
    } else if (result.status.code() == StatusCode::resource_exhausted && !batch->retried) {
      needed += ssd_->room_needed(item.image);
      again.push_back(std::move(item));
    } else {
      check_known_file(*r);
      write_failed(file_name(item.which.name), result.status);
      spill_failed(*r);
    }
  }
  if (again.empty()) return finish_batch(batch);
  batch->items = std::move(again);
  batch->retried = true;
  auto victims = ssd_victims(needed);
  if (victims.empty()) return write_batch(batch);
  unlink(std::move(victims), [this, batch](Status) { write_batch(batch); });
}

void CacheCore::Impl::finish_batch(std::shared_ptr<SpillBatch> batch) {
  unpin_all(batch->pins);
  free_on(workers_, std::pair(std::move(batch->scratch), std::exchange(batch->items, {})));
  writing_.reset();
  if (unsynced_.size() > kMaxBatchFiles * 64) run_sync();
  check_commit_waits();
  if (packing_ && packing_->unpacked == 0) write_batch(packing_);
  pump_spill();
  pump_room();
  check_drained();
}

void CacheCore::Impl::schedule_sync() {
  if (syncing_ || sync_timer_) return;
  sync_timer_ = std::make_unique<boost::asio::steady_timer>(loop_, options_.durable_group_delay);
  sync_timer_->async_wait([weak = weak_from_this()](boost::system::error_code error) {
    auto self = weak.lock();
    if (error || !self || self->closed_) return;
    self->sync_timer_.reset();
    self->run_sync();
  });
}

// One sync for all that was spilled until now.
void CacheCore::Impl::run_sync() {
  if (syncing_ || !ssd_) return;
  syncing_ = true;
  auto names = std::make_shared<std::vector<PinnedName>>(std::exchange(unsynced_, {}));
  on_ssd([ssd = ssd_] { return ssd->sync(); }, [this, names](Status status) {
    syncing_ = false;
    if (!status.ok()) {
      ++failed_syncs_;
      write_failed("folders", status);
    }
    for (const PinnedName& p : *names) {
      Record* r = find_pinned(p);
      if (!r || !r->on_ssd()) continue;
      if (status.ok()) r->disk = Durability::durable;
      else unsynced_.push_back(p);
    }
    check_commit_waits();
    check_drained();
  });
}

void CacheCore::Impl::note_touches(const std::vector<Record*>& records) {
  if (!ssd_) return;
  for (Record* r : records) {
    if (r->on_ssd()) touched_.push_back(r->name);
  }
  if (touched_.size() >= 1024) flush_touches();
}

void CacheCore::Impl::flush_touches() {
  if (touched_.empty()) return;
  if (writes_hang()) return touched_.clear();  // only recency: nothing waits for a device for that
  on_ssd([ssd = ssd_, names = std::exchange(touched_, {})] {
    ssd->touch(names);
    return true;
  }, [](bool) {});
}

}  // namespace kv
