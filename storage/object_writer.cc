// Puts: temp files of a batch are all written, then all synced, then renamed in the caller's order,
// then their folders synced (durable), then their rows written.
#include "storage/object_writer.h"

#include <algorithm>

#include "storage/ssd_options.h"

namespace kv {

uint64_t ObjectWriter::room_needed(const FileImage& image) const {
  // The header's planes and pieces: the same fields as encode_file, counted instead of written.
  const Object& o = image.header;
  uint64_t head = kPrefixBytes + 256 + o.ns.size() + o.tokens.size() * sizeof(Token);
  for (const auto& e : o.extras) head += 8 + e.bytes.size();
  for (const auto& p : o.planes) head += 24 + p.runs.size() * 17;
  head += o.states.size() * 12 + image.pieces.size() * 17;
  uint64_t bytes = head + image.stored_bytes();
  if (dir_.key() != nullptr) bytes = sealed_file_bytes(head, image.stored_bytes());
  return file_room(bytes) + CatalogMirror::row_room(o);
}

std::vector<PutResult> ObjectWriter::put(std::span<const FileImage> images, Durability level) {
  std::vector<PutResult> results(images.size());
  FailedIds failed;
  for (size_t at = 0; at < images.size(); at += kMaxBatchFiles) {
    std::vector<Item> items(std::min(kMaxBatchFiles, images.size() - at));
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].image = &images[at + i];
      items[i].result = &results[at + i];
    }
    put_batch(items, level, failed);
  }
  return results;
}

namespace {

// True if both images make the same file: the same header, and the same pieces packed alike.
bool same_bytes(const FileImage& a, const FileImage& b) {
  auto one = encode_file(a), other = encode_file(b);
  return one.ok() && other.ok() && one->head == other->head && one->payload == other->payload;
}

}  // namespace

void ObjectWriter::put_batch(std::span<Item> items, Durability level, FailedIds& failed) {
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

void ObjectWriter::write_item(Item& item, FailedIds& failed) {
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
  Status status = publisher_.write_temp(*file, CatalogMirror::row_room(o), item.pending);
  if (!status.ok()) return fail(item, std::move(status), failed);
  item.alive = true;
}

void ObjectWriter::publish_item(Item& item, FailedIds& failed) {
  const Object& o = item.image->header;
  // The parent may have failed after this one was written.
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
  item.result->reached = Durability::spilled;
  item.result->allocated_bytes = item.pending.allocated_bytes;
  ++files_written_;
  bytes_written_ += item.pending.bytes;
}

void ObjectWriter::sync_items(std::span<Item> items) {
  // Syncs all dirty folders, not only this batch's: then the path to the root is durable as well.
  Status any = dir_.sync_folders();
  for (auto& item : items) {
    if (item.result->reached != Durability::spilled) continue;
    if (any.ok()) {
      item.result->reached = Durability::durable;
      publisher_.observe(Step::folders_synced, item.pending.name);
    } else {
      item.result->status = any;
      ++put_failures_;
    }
  }
}

void ObjectWriter::mirror_items(std::span<Item> items) {
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
    row.recency = catalog_.next_recency();
    row.note = item.image->note;
    rows.push_back(std::move(row));
  }
  catalog_.upsert(rows);
  catalog_.flush_touches();
  for (auto& item : items) {
    if (item.alive) publisher_.observe(Step::row_written, item.pending.name);
  }
}

void ObjectWriter::fail(Item& item, Status status, FailedIds& failed) {
  const ObjectName& name = item.image->header.name;
  // A supplement has its block's id, and nothing depends on it.
  if (name.kind != ObjectKind::supplement) failed.emplace(name.id, status);
  item.result->status = std::move(status);
  item.alive = false;
  ++put_failures_;
}

bool ObjectWriter::stored(const FileImage& image) {
  auto there = reader_.read_as_writer(image.header.name);
  return there.ok() && same_bytes(*there, image);
}

void ObjectWriter::count(SsdStats& out) const {
  out.files_written = files_written_;
  out.bytes_written = bytes_written_;
  out.put_failures = put_failures_;
}

}  // namespace kv
