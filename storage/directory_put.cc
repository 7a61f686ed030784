// Puts: temp files of a batch are all written, then all synced, then renamed in the caller's order,
// then their folders synced (durable), then their rows written. FORMAT.md, "Publish and delete".
#include <algorithm>

#include "storage/directory_tier.h"
#include "storage/file_reader.h"
#include "storage/object_reader.h"

namespace kv {

uint64_t DirectoryTier::room_needed(const FileImage& image) const {
  // The header's planes and pieces: the same fields as encode_file, counted instead of written.
  const Object& o = image.header;
  uint64_t head = kPrefixBytes + 256 + o.ns.size() + o.tokens.size() * sizeof(Token);
  for (const auto& e : o.extras) head += 8 + e.bytes.size();
  for (const auto& p : o.planes) head += 24 + p.runs.size() * 5;
  head += o.states.size() * 12 + image.pieces.size() * 17;
  uint64_t bytes = head + image.stored_bytes();
  if (dir_.key() != nullptr) bytes = sealed_file_bytes(head, image.stored_bytes());
  return file_room(bytes) + CatalogMirror::row_room(o);
}

std::vector<PutResult> DirectoryTier::put(std::span<const FileImage> images, Durability level) {
  std::vector<PutResult> results(images.size());
  std::lock_guard lock(writer_mutex_);
  if (!recovered_ || (level != Durability::spilled && level != Durability::durable)) {
    for (auto& result : results) {
      result.status = recovered_ ? invalid_argument("put: level must be spilled or durable")
                                 : Status(StatusCode::internal, "put before recover()");
    }
    return results;
  }
  FailedIds failed;
  for (size_t at = 0; at < images.size(); at += kMaxBatchFiles) {
    size_t count = std::min(kMaxBatchFiles, images.size() - at);
    put_batch(images.subspan(at, count), level, std::span(results).subspan(at, count), failed);
  }
  return results;
}

void DirectoryTier::put_batch(std::span<const FileImage> images, Durability level,
                              std::span<PutResult> results, FailedIds& failed) {
  std::vector<Item> items(images.size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].image = &images[i];
    items[i].result = &results[i];
  }
  put_items(items, level, failed);
}

namespace {

// True if both are one file: the same header, and the same pieces packed in the same way.
bool same_bytes(const FileImage& a, const FileImage& b) {
  auto one = encode_file(a), other = encode_file(b);
  return one.ok() && other.ok() && one->head == other->head && one->payload == other->payload;
}

}  // namespace

void DirectoryTier::put_items(std::span<Item> items, Durability level, FailedIds& failed) {
  for (auto& item : items) write_item(item, failed);
  for (auto& item : items) {
    if (!item.alive) continue;
    Status status = publisher_.sync_temp(item.pending);
    if (!status.ok()) fail(item, std::move(status), failed);
  }
  for (auto& item : items) {
    if (item.alive) publish_item(item, failed);
  }
  if (level == Durability::durable) sync_items(items);
  mirror_items(items);
  for (auto& item : items) publisher_.settle(item.pending);
}

void DirectoryTier::write_item(Item& item, FailedIds& failed) {
  const Object& o = item.image->header;
  item.pending.name = file_name(o.name);
  item.pending.id = o.name.id;
  auto file = encode_file(*item.image);
  if (!file.ok()) return fail(item, file.status(), failed);
  if (stored(*item.image)) {
    item.result->existed = true;
    item.result->reached = Durability::spilled;
    auto info = dir_.files().stat(dir_.file_path(o.name.id, item.pending.name));
    if (info.ok()) item.result->allocated_bytes = info->allocated_bytes;
    return;
  }
  bool depends = o.name.kind == ObjectKind::supplement;
  auto parent = failed.find(depends ? o.name.id : o.parent);
  if (parent != failed.end()) return fail(item, parent->second, failed);
  Status status = write_temp(*file, CatalogMirror::row_room(o), item.pending);
  if (!status.ok()) return fail(item, std::move(status), failed);
  item.alive = true;
}

void DirectoryTier::publish_item(Item& item, FailedIds& failed) {
  const Object& o = item.image->header;
  // Its parent may have failed after this one was written.
  auto parent = failed.find(o.name.kind == ObjectKind::supplement ? o.name.id : o.parent);
  if (parent != failed.end()) {
    publisher_.abandon(item.pending);
    return fail(item, parent->second, failed);
  }
  if (stored(*item.image)) {  // twice in one batch
    publisher_.abandon(item.pending);
    item.alive = false;
    item.result->existed = true;
    item.result->reached = Durability::spilled;
    return;
  }
  Status status = publisher_.publish(item.pending);
  if (!status.ok()) return fail(item, std::move(status), failed);
  other_keys_.forget(item.pending.name);
  item.result->reached = Durability::spilled;
  item.result->allocated_bytes = item.pending.allocated_bytes;
  ++counters_.files_written;
  counters_.bytes_written += item.pending.bytes;
}

void DirectoryTier::sync_items(std::span<Item> items) {
  // All dirty folders, not only this batch's: then the path to the root is durable as well.
  Status any = dir_.sync_folders();
  for (auto& item : items) {
    if (item.result->reached != Durability::spilled) continue;
    if (any.ok()) {
      item.result->reached = Durability::durable;
      publisher_.observe(Step::folders_synced, item.pending.name);
    } else {
      item.result->status = any;
      ++counters_.put_failures;
    }
  }
}

void DirectoryTier::mirror_items(std::span<Item> items) {
  std::vector<KnownObject> rows;
  for (auto& item : items) {
    if (!item.alive) continue;
    KnownObject row;
    const Object& o = item.image->header;
    row.header.name = o.name;
    row.header.parent = o.parent;
    row.header.profile = o.profile;
    row.header.ns = o.ns;
    row.header.fingerprint = o.fingerprint;
    row.header.first_token = o.first_token;
    row.header.tokens = o.tokens;
    row.header.extras = o.extras;
    row.unpacked_bytes = item.image->unpacked_bytes();
    row.file_bytes = item.pending.bytes;
    row.allocated_bytes = item.pending.allocated_bytes;
    row.recency = ++recency_;
    rows.push_back(std::move(row));
  }
  catalog_.upsert(rows);
  flush_touches();
  for (auto& item : items) {
    if (item.alive) publisher_.observe(Step::row_written, item.pending.name);
  }
}

void DirectoryTier::fail(Item& item, Status status, FailedIds& failed) {
  const ObjectName& name = item.image->header.name;
  // A supplement has its block's id, and nothing depends on it.
  if (name.kind != ObjectKind::supplement) failed.emplace(name.id, status);
  item.result->status = std::move(status);
  item.alive = false;
  ++counters_.put_failures;
}

bool DirectoryTier::stored(const FileImage& image) {
  const ObjectName& name = image.header.name;
  std::string path = dir_.file_path(name.id, file_name(name));
  auto there = read_object(dir_.files(), buffers_, path, name, dir_.key());
  if (!there.ok() && there.status().code() == StatusCode::corruption) {
    there = read_again(name, path, {});
  }
  return there.ok() && same_bytes(*there, image);
}

}  // namespace kv
