// The catalog within the ledger: small transactions, and a checkpoint before the log gets large.
#include "storage/catalog_mirror.h"

#include <algorithm>

namespace kv {
namespace {

// Log size that asks for a checkpoint. With one transaction of kRowsPerBatch it stays below
// kHeadroomBytes, so that removals never need to ask the ledger.
constexpr uint64_t kLogBytes = 1 << 20;
constexpr size_t kRowsPerBatch = 16;

template <typename T, typename Body>
void in_batches(std::span<const T> all, Body body) {
  while (!all.empty()) {
    auto batch = all.first(std::min(all.size(), kRowsPerBatch));
    body(batch);
    all = all.subspan(batch.size());
  }
}

}  // namespace

Catalog::Rows CatalogMirror::open(std::string& why) {
  why.clear();
  auto present = dir_.files().stat(dir_.catalog_path());
  if (!present.ok()) why = "catalog: missing";
  auto opened = Catalog::open(dir_.catalog_path(), dir_.files());
  Catalog::Rows rows;
  Status status = opened.ok() ? Status() : opened.status();
  if (opened.ok()) {
    auto loaded = (*opened)->load();
    status = loaded.ok() ? Status() : loaded.status();
    if (loaded.ok()) rows = std::move(*loaded);
  }
  if (status.ok()) {
    catalog_ = std::move(*opened);
  } else {
    why = status.message();
    if (opened.ok()) (*opened).reset();
    start_anew();
  }
  measure();
  return rows;
}

void CatalogMirror::start_anew() {
  std::string path = dir_.catalog_path();
  for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
    auto info = dir_.files().stat(path + suffix);
    if (!info.ok()) continue;
    dir_.ledger().add(info->allocated_bytes);  // take() expects it to be counted
    Status moved = quarantine_.take(path + suffix, std::string(kCatalogFile) + suffix);
    if (!moved.ok()) ++failures_;
  }
  auto opened = Catalog::open(path, dir_.files());
  if (opened.ok()) {
    catalog_ = std::move(*opened);
  } else {
    ++failures_;
  }
}

void CatalogMirror::upsert(std::span<const KnownObject> objects) {
  if (catalog_) after(catalog_->upsert(objects));
}

void CatalogMirror::adopt(std::span<const KnownObject> objects) {
  in_batches(objects, [&](std::span<const KnownObject> batch) {
    uint64_t room = 0;
    for (const auto& object : batch) room += row_room(object.header);
    if (!dir_.ledger().reserve(room)) return;
    upsert(batch);
    dir_.ledger().unreserve(room);
  });
}

void CatalogMirror::remove(std::span<const std::string> files) {
  in_batches(files, [&](std::span<const std::string> batch) {
    if (catalog_) after(catalog_->remove(batch));
  });
}

void CatalogMirror::set_recency(std::span<const std::pair<std::string, uint64_t>> recency) {
  in_batches(recency, [&](std::span<const std::pair<std::string, uint64_t>> batch) {
    if (catalog_) after(catalog_->set_recency(batch));
  });
}

Status CatalogMirror::checkpoint() {
  if (!catalog_) return {};
  Status status = catalog_->checkpoint();
  if (!status.ok()) ++failures_;
  measure();
  return status;
}

void CatalogMirror::after(const Status& status) {
  if (!status.ok()) ++failures_;
  measure();
  if (growth_bytes_ > kLogBytes) (void)checkpoint();  // a failure is counted there
}

void CatalogMirror::measure() {
  auto size_of = [&](const std::string& path) -> uint64_t {
    auto info = dir_.files().stat(path);
    return info.ok() ? info->allocated_bytes : 0;
  };
  std::string path = dir_.catalog_path();
  uint64_t log = size_of(path + "-wal");
  uint64_t total = size_of(path) + log;
  dir_.ledger().replace(measured_bytes_, total);
  dir_.ledger().reserve_always(log);
  dir_.ledger().unreserve(growth_bytes_);
  measured_bytes_ = total;
  growth_bytes_ = log;
}

}  // namespace kv
