// Batches: chosen, packed, written; their results by object. See spill_writer.h.
#include "cachesvc/core/spill_writer.h"

#include <algorithm>

#include "cachesvc/core/paths.h"

namespace kv {
namespace {

using State = SpillBatch::State;
using Image = std::shared_ptr<const FileImage>;

constexpr uint64_t kScarceShare = 4;  // the SSD is scarce with less than limit / 4 left
// Payload bytes of a batch, and one object more: a slow device writes them in seconds.
constexpr uint64_t kSpillBatchBytes = 64u << 20;

// An item as one write has it.
struct Written {
  Image image;
  ObjectNote note;
};
std::vector<Written> written_of(const std::vector<SpillItem>& items) {
  std::vector<Written> all;
  for (const auto& item : items) all.push_back({item.image, item.note});
  return all;
}

// Runs on a worker.
std::vector<FileImage> copies(const std::vector<Written>& all) {
  std::vector<FileImage> out;
  out.reserve(all.size());
  for (const Written& each : all) out.emplace_back(*each.image).note = each.note;
  return out;
}

// Results of one write, unless the SSD was short of so many bytes before it.
struct Attempt {
  uint64_t short_by = 0;
  std::vector<PutResult> results;
};

}  // namespace

void SpillWriter::pump() {
  if (writing_ && writing_->state() == State::records) begin_writing(writing_);
  if (packing_ && packing_->state() == State::packed && !writing_) {
    begin_writing(std::exchange(packing_, nullptr));
  }
}

bool SpillWriter::packs_codes() const {
  const CacheOptions& o = env_.options;
  if (o.pack_codes != PackCodes::scarce) return o.pack_codes == PackCodes::always;
  return pace_.limited() || lane_.ssd()->room_left() < o.ssd_limit_bytes / kScarceShare;
}

void SpillWriter::start() {
  auto batch = std::make_shared<SpillBatch>();
  batch->codes = packs_codes();
  std::vector<Record*> keep;
  uint64_t bytes = 0, payload = 0;
  std::set<const Record*> later;  // a file of the name is to go first; so for what hangs on it
  for (const Record& queued : records_.lists().all(Disk::queued)) {
    const size_t items = batch->items.size();
    if (items == env_.options.spill_batch_files) break;
    if (items > 0 && payload + queued.payload_bytes > kSpillBatchBytes) break;
    Record* r = index_.find(queued.name);
    if (lane_.unlinking(r->name) || (!later.empty() && later.contains(parent_of(*r)))) {
      later.insert(r);
      continue;
    }
    batch->items.push_back({{r->name, r->serial}, r->ram, {}});
    payload += r->payload_bytes;
    bytes += batch->codes ? r->payload_bytes : exact_bytes(*r->ram);
    keep.push_back(r);
    if (Record* parent = parent_of(*r)) keep.push_back(parent);
  }
  if (batch->items.empty()) return;  // the end of an unlink goes on
  batch->pins = Pins(env_, index_, keep);
  for (const SpillItem& item : batch->items) {
    Record& r = *index_.find(item.which);
    env_.measures.spill_wait.add(uint64_t{env_.milliseconds() - r.queued_ms} * 1000);
    records_.begin_write(r);
  }
  auto scratch = env_.pool->try_charge(ChargeKind::spill, bytes);
  if (scratch) batch->scratch = std::move(*scratch);
  for (auto& item : batch->items) item.raw = !scratch;
  packing_ = batch;
  pack(batch);
}

void SpillWriter::pack(const BatchPtr& batch) {
  batch->unpacked = batch->items.size();
  for (size_t i = 0; i < batch->items.size(); ++i) {
    const SpillItem& item = batch->items[i];
    env_.on_worker(
        [object = item.object, raw = item.raw, codes = batch->codes]() -> Result<PackedImage> {
          return pack_object(object, raw, codes);
        },
        [this, batch, i](Result<PackedImage> made) {
          SpillItem& packed = batch->items[i];
          if (made.ok()) {
            ++env_.count.ram_verified;
            packed.image = std::move(made->image);
            packed.damaged = !made->intact;
            Record* r = packed.damaged ? index_.find(packed.which) : nullptr;
            if (r) checks_.damaged(*r);
          }
          if (--batch->unpacked > 0) return;
          batch->move(State::packed);
          then_.pump();
        });
  }
}

// True if the batch waits for records: a profile and a model record must be on the SSD before the
// first object that names them. Their write is tried once for each batch.
bool SpillWriter::wait_for_records(SpillBatch& batch) {
  bool wait = false;
  for (const SpillItem& item : batch.items) {
    Record* r = index_.find(item.which);
    ModelState* model = r ? models_.of(*r) : nullptr;
    if (!model || model->records_durable) continue;
    if (batch.records_tried.insert(model).second) model_records_.write(*model);
    wait |= model->records_writing;
  }
  return wait;
}

// Keeps items that can still be written: neither erased nor damaged, and with all their ancestors.
void SpillWriter::keep_writable(SpillBatch& batch) {
  std::vector<SpillItem> items;
  std::set<Record*> earlier;
  for (SpillItem& item : batch.items) {
    Record* r = index_.find(item.which);
    if (!r || r->disk != Disk::writing || item.damaged) continue;
    Record* parent = parent_of(*r);
    ModelState* model = models_.of(*r);
    bool reachable = !parent || parent->on_ssd() || earlier.count(parent);
    if (!reachable || !model || !model->records_durable || !item.image) {
      retries_.failed(*r);
      continue;
    }
    earlier.insert(r);
    item.note = r->note();
    items.push_back(std::move(item));
  }
  batch.items = std::move(items);
}

// Begins the write of a packed batch; the next batch may be packed from here on.
void SpillWriter::begin_writing(const BatchPtr& batch) {
  const BatchPtr own = batch;  // `batch` may be writing_
  if (own->state() == State::packed) env_.progress();
  writing_ = own;
  own->move(State::records);
  if (wait_for_records(*own)) return;
  keep_writable(*own);
  if (own->items.empty()) return end_batch(own);
  own->move(State::writing);
  lane_.run(
      [ssd = lane_.ssd(), all = written_of(own->items)]() -> Result<Attempt> {
        uint64_t needed = 0, left = ssd->room_left();
        for (const Written& each : all) needed += ssd->room_needed(*each.image);
        if (needed > left) return Attempt{needed - left, {}};
        return Attempt{0, ssd->put(copies(all), Durability::spilled)};
      },
      [this, own](Result<Attempt> attempt) {
        if (!attempt.ok()) return written(own, attempt.status());
        if (attempt->short_by > 0) return write_in_place(own, attempt->short_by);
        written(own, std::move(attempt->results));
      });
}

// Writes a second time, with others' room. An object that was erased meanwhile must not be written
// after its unlink.
void SpillWriter::write_in_place(const BatchPtr& batch, uint64_t short_by) {
  std::erase_if(batch->items, [this](const SpillItem& item) { return !index_.find(item.which); });
  if (batch->items.empty()) return end_batch(batch);
  auto job = [ssd = lane_.ssd(),
              all = written_of(batch->items)]() -> Result<std::vector<PutResult>> {
    return ssd->put(copies(all), Durability::spilled);
  };
  lane_.run_with_room(short_by, std::move(job),
                      [this, batch](Result<std::vector<PutResult>> results) {
                        written(batch, std::move(results));
                      });
}

void SpillWriter::written(const BatchPtr& batch, Result<std::vector<PutResult>> results) {
  pace_.charge();
  if (!results.ok()) return fail_batch(batch);
  uint64_t needed = 0;
  auto result = results->begin();
  for (SpillItem& item : batch->items) {
    bool full = result->status.code() == StatusCode::resource_exhausted && !batch->retried;
    item.again = full && index_.find(item.which);
    if (item.again)
      needed += lane_.ssd()->room_needed(*item.image);
    else
      item_written(item, *result);
    ++result;
  }
  if (needed == 0) return end_batch(batch);
  std::erase_if(batch->items, [](const SpillItem& item) { return !item.again; });
  batch->retried = true;
  lane_.run_with_room(
      needed, [] { return Status(); }, [this, batch](Status) { begin_writing(batch); });
}

void SpillWriter::item_written(const SpillItem& item, const PutResult& result) {
  Record* r = index_.find(item.which);
  if (!r) return;  // erased meanwhile: its unlink is queued behind this write
  if (result.reached == Durability::none) {
    lane_.write_failed(&item.which.name, result.status);
    check_old_file(*r);
    if (r->disk == Disk::writing) retries_.failed(*r);
    return;
  }
  const bool stands = r->disk == Disk::writing || r->disk == Disk::known;  // known: lost by RAM
  if (stands) records_.written(*r, result.reached, result.allocated_bytes);
  // A row that was there before has its own note.
  const ObjectNote note = r->note();
  if (item.note != note || (result.existed && !note.empty())) lane_.note({{r->name, note}});
  if (stands) remote_.stored(*r);
  retries_.wrote();
  ++env_.count.spills_written;
  env_.count.spill_raw_bytes += item.image->unpacked_bytes();
  env_.count.spill_packed_bytes += item.image->stored_bytes();
}

// Checks the old file of an object whose rewrite failed: it is as good as before, unless the write
// found it damaged and moved it away.
void SpillWriter::check_old_file(const Record& record) {
  if (record.file.bytes == 0) return;
  PinnedName which{record.name, record.serial};
  lane_.run([ssd = lane_.ssd(), name = record.name] { return ssd->read(name).status(); },
            [this, which](Status status) {
              bool gone =
                  status.code() == StatusCode::not_found || status.code() == StatusCode::corruption;
              Record* r = gone ? index_.find(which) : nullptr;
              if (r && !r->verified()) then_.file_lost(*r);
            });
}

void SpillWriter::fail_batch(const BatchPtr& batch) {
  for (const SpillItem& item : batch->items) {
    Record* r = index_.find(item.which);
    if (r && r->disk == Disk::writing) retries_.failed(*r);
  }
  end_batch(batch);
}

void SpillWriter::end_batch(const BatchPtr& batch) {
  const BatchPtr own = batch;  // `batch` may be writing_
  own->pins.release();
  free_on(env_.workers, std::pair(std::move(own->scratch), std::exchange(own->items, {})));
  if (writing_ == own) writing_.reset();
  if (records_.lists().count(Disk::renamed) > kMaxBatchFiles * 64) syncer_.run();
  then_.pump();
  env_.progress();
  env_.room_freed();
}

void SpillWriter::check_invariants() const {
  size_t written = 0;
  for (const BatchPtr& batch : {packing_, writing_}) {
    if (!batch) continue;
    for (const SpillItem& item : batch->items) {
      const Record* r = index_.find(item.which);
      written += r && r->disk == Disk::writing;
    }
  }
  KV_CHECK(written == records_.lists().count(Disk::writing));
  KV_CHECK(!packing_ || packing_->state() <= State::packed);
  KV_CHECK(!writing_ || writing_->state() >= State::records);
}

}  // namespace kv
