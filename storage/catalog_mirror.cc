// The catalog within the ledger: small transactions, and a checkpoint before the log gets large.
#include "storage/catalog_mirror.h"

#include <algorithm>
#include <memory>

#include "storage/file_names.h"

namespace kv {
namespace {

// Log size that asks for a checkpoint. With one transaction of kRowsPerBatch it stays below
// kHeadroomBytes, so that removals never need to ask the ledger.
constexpr uint64_t kLogBytes = 1 << 20;
constexpr size_t kRowsPerBatch = 16;
// Rows of a rebuild, where the ledger has room for so many: neighbours share the pages they touch.
constexpr size_t kRowsPerRebuildBatch = 512;
constexpr size_t kMaxPendingTouches = 256;

template <typename T, typename Body>
void in_batches(std::span<const T> all, size_t rows, Body body) {
  while (!all.empty()) {
    auto batch = all.first(std::min(all.size(), rows));
    body(batch);
    all = all.subspan(batch.size());
  }
}

}  // namespace

Status CatalogMirror::open(Catalog::Rows& rows, std::optional<KeptState>& state, std::string& why) {
  why.clear();
  auto present = dir_.files().stat(dir_.catalog_path());
  if (!present.ok()) why = "catalog: missing";
  auto opened = Catalog::open(dir_.catalog_path(), dir_.files(), dir_.key());
  Status status = opened.ok() ? Status() : opened.status();
  if (opened.ok()) {
    auto loaded = (*opened)->load();
    status = loaded.ok() ? Status() : loaded.status();
    if (loaded.ok()) rows = std::move(*loaded);
  }
  if (status.ok()) {
    auto kept = (*opened)->state();
    status = kept.ok() ? Status() : kept.status();
    if (kept.ok()) state = std::move(*kept);
    if (!status.ok()) rows = {};
  }
  if (status.ok()) {
    catalog_ = std::move(*opened);
  } else if (status.code() == StatusCode::busy) {
    why = status.message();  // sound, but somebody reads it: this run does without
    ++failures_;
  } else {
    why = status.message();
    if (opened.ok()) (*opened).reset();
    start_anew();
  }
  return measure(0, 0);
}

void CatalogMirror::start_anew() {
  std::string path = dir_.catalog_path();
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    auto info = dir_.files().stat(path + suffix);
    if (!info.ok()) continue;
    dir_.ledger().add(info->allocated_bytes);  // take() expects it to be counted
    Status moved = quarantine_.take(path + suffix, std::string(kCatalogFile) + suffix);
    if (!moved.ok()) ++failures_, left_old_ = true;
  }
  auto opened = Catalog::open(path, dir_.files(), dir_.key());
  if (opened.ok()) {
    catalog_ = std::move(*opened);
  } else {
    ++failures_;
  }
}

Status CatalogMirror::start_empty() {
  catalog_.reset();
  for (const char* suffix : {"", "-wal"}) {
    Status gone = dir_.files().unlink(dir_.catalog_path() + suffix);
    if (!gone.ok() && gone.code() != StatusCode::not_found) return gone;
  }
  KV_ASSIGN_OR_RETURN(catalog_, Catalog::open(dir_.catalog_path(), dir_.files(), dir_.key()));
  return measure(0, 0);
}

void CatalogMirror::upsert(std::span<const KnownObject> objects) {
  if (!catalog_) return;
  uint64_t bound = 0;
  for (const auto& object : objects) bound += Catalog::growth_bound(object.header);
  (void)apply([&] { return catalog_->upsert(objects); }, bound);
}

void CatalogMirror::adopt(std::span<const KnownObject> objects) {
  auto add = [&](std::span<const KnownObject> batch) {
    uint64_t room = 0;
    for (const auto& object : batch) room += row_room(object.header);
    if (!dir_.check_free(room).ok() || !dir_.ledger().reserve(room)) return false;
    upsert(batch);
    dir_.ledger().unreserve(room);
    return true;
  };
  in_batches(objects, kRowsPerRebuildBatch, [&](std::span<const KnownObject> batch) {
    if (!add(batch)) in_batches(batch, kRowsPerBatch, add);
  });
}

void CatalogMirror::remove(std::span<const std::string> files) {
  for (const std::string& file : files) touches_.erase(file);
  in_batches(files, kRowsPerBatch, [&](std::span<const std::string> batch) {
    if (!catalog_) return;
    bool gone =
        apply([&] { return catalog_->remove(batch); }, batch.size() * Catalog::growth_bound({}));
    left_rows_ |= !gone;
  });
}

void CatalogMirror::touch(std::span<const ObjectName> names) {
  for (const auto& name : names) touches_[file_name(name)] = next_recency();
  if (touches_.size() >= kMaxPendingTouches) flush_touches();
}

void CatalogMirror::flush_touches() {
  if (touches_.empty()) return;
  std::vector<std::pair<std::string, uint64_t>> recency(touches_.begin(), touches_.end());
  touches_.clear();
  set_recency(recency);
}

void CatalogMirror::set_recency(std::span<const std::pair<std::string, uint64_t>> recency) {
  in_batches(recency, kRowsPerBatch, [&](std::span<const std::pair<std::string, uint64_t>> batch) {
    if (!catalog_) return;
    (void)apply([&] { return catalog_->set_recency(batch); },
                batch.size() * Catalog::growth_bound({}));
  });
}

void CatalogMirror::note(std::span<const NotedName> notes) {
  in_batches(notes, kRowsPerBatch, [&](std::span<const NotedName> batch) {
    std::vector<std::pair<std::string, ObjectNote>> rows;
    for (const auto& [name, note] : batch) rows.emplace_back(file_name(name), note);
    if (!catalog_) return;
    (void)apply([&] { return catalog_->set_notes(rows); },
                batch.size() * Catalog::growth_bound({}));
  });
}

void CatalogMirror::keep(const KeptState& state) {
  std::optional<KeptState> whole = state;
  std::lock_guard lock(kept_mutex_);
  kept_.swap(whole);
}

// Writes the kept state. It is lost if it can't be written: the next one says more.
void CatalogMirror::write_state() {
  std::optional<KeptState> state;
  {
    std::lock_guard lock(kept_mutex_);
    state = std::exchange(kept_, std::nullopt);
  }
  if (state && catalog_ && !catalog_->set_state(*state).ok()) ++failures_;
}

Status CatalogMirror::checkpoint() {
  if (!catalog_) return {};
  write_state();
  Status status = catalog_->checkpoint();
  if (!status.ok()) ++failures_;
  (void)measure(log_bytes_, 0);
  return status;
}

// A frame of the log is a page and its header; as much again is promised for the database.
uint64_t CatalogMirror::room_to_compact() const {
  return 2 * (database_bytes_ + database_bytes_ / 64 + kLogBytes);
}

// Drops rows without a file: among them are those whose removal failed.
void CatalogMirror::drop_left_rows() {
  if (!left_rows_) return;
  auto files = catalog_->files();
  if (!files.ok()) return;
  bool unsure = false;
  std::erase_if(*files, [&](const std::string& file) {
    auto name = parse_file_name(file);
    if (!name) return false;
    auto info = dir_.files().stat(dir_.file_path(name->object.id, file));
    bool gone = info.status().code() == StatusCode::not_found;
    unsure |= !info.ok() && !gone;
    return !gone;
  });
  left_rows_ = unsure;
  remove(*files);
}

Status CatalogMirror::compact() {
  if (!catalog_) {
    return {StatusCode::busy, "catalog: open in another process or unusable: not compacted"};
  }
  drop_left_rows();
  KV_RETURN_IF_ERROR(checkpoint());  // the log's promise covers the database's growth from here on
  uint64_t room = room_to_compact();
  KV_RETURN_IF_ERROR(dir_.check_free(room));
  if (!dir_.ledger().reserve(room)) {
    return {StatusCode::resource_exhausted, "ssd limit: " + std::to_string(room) +
                                                " bytes needed to compact the catalog, " +
                                                std::to_string(dir_.ledger().left()) + " left"};
  }
  Status status = catalog_->compact();
  if (!status.ok()) ++failures_;
  (void)measure(room / 2, room / 2);
  dir_.ledger().unreserve(room);
  if (status.ok() && (left_rows_ || left_old_)) {
    status = {StatusCode::io_error, left_rows_ ? "catalog: rows could not be removed"
                                               : "catalog: the old one could not be moved away"};
  }
  return status;
}

template <typename Change>
bool CatalogMirror::apply(Change change, uint64_t growth_bound) {
  bool done = change().ok();
  if (!done) ++failures_;
  (void)measure(growth_bound, growth_bound);
  if (log_bytes_ > kLogBytes) (void)checkpoint();  // a failure is counted there
  return done;
}

Status CatalogMirror::measure(uint64_t database_growth, uint64_t log_growth) {
  if (catalog_) bytes_written_ = catalog_->bytes_written();
  Status first;
  auto size_of = [&](const char* suffix, uint64_t most) -> uint64_t {
    auto info = dir_.files().stat(dir_.catalog_path() + suffix);
    if (info.ok()) return info->allocated_bytes;
    if (info.status().code() == StatusCode::not_found) return 0;
    if (first.ok()) first = info.status();
    return most;
  };
  uint64_t database = size_of("", database_bytes_ + database_growth);
  uint64_t log = size_of("-wal", log_bytes_ + log_growth);
  dir_.ledger().replace(database_bytes_ + log_bytes_, database + log);
  dir_.ledger().reserve_always(log);
  dir_.ledger().unreserve(log_bytes_);
  database_bytes_ = database;
  log_bytes_ = log;
  return first;
}

}  // namespace kv
