// Verified reads, second reads of failed files, and verification of the store.
#include "storage/verified_reader.h"

#include <algorithm>

#include "storage/record_reader.h"

namespace kv {
namespace {

void drop_cached(Files& files, const std::string& path) {
  auto fd = files.open_read(path);
  if (!fd.ok()) return;
  FdGuard guard(files, *fd);
  files.drop_cached(*fd);
}

Status not_moved(const Status& damage, const Status& moved) {
  return corruption(damage.message() + "; not quarantined: " + moved.message());
}

}  // namespace

VerifiedReader::VerifiedReader(StoreDir& dir, CatalogMirror& catalog, Quarantine& quarantine,
                               std::mutex& writer, size_t buffers)
    : dir_(dir),
      catalog_(catalog),
      quarantine_(quarantine),
      writer_mutex_(writer),
      buffers_(std::clamp<size_t>(buffers, 1, kMostReadBuffers)) {}

Result<FileImage> VerifiedReader::read_once(const ObjectName& name, const PlacePayload& place) {
  std::string path = dir_.file_path(name.id, file_name(name));
  return read_object(dir_.files(), buffers_, path, name, dir_.key(), {}, place);
}

Result<FileImage> VerifiedReader::read(const ObjectName& name, const PlacePayload& place) {
  ++reads_;
  auto image = read_once(name, place);
  if (image.status().code() == StatusCode::corruption) {
    std::lock_guard lock(writer_mutex_);
    image = read_again(name, place);
  }
  if (image.ok()) {
    bytes_read_ += image->stored_bytes();
  } else if (image.status().code() == StatusCode::io_error) {
    ++read_errors_;
  }
  return image;
}

Result<FileImage> VerifiedReader::read_as_writer(const ObjectName& name) {
  auto image = read_once(name, {});
  return image.status().code() == StatusCode::corruption ? read_again(name, {}) : std::move(image);
}

// Reads a second and last time: a transient error between disk and memory is over by now.
Result<FileImage> VerifiedReader::read_again(const ObjectName& name, const PlacePayload& place) {
  auto image = read_once(name, place);
  if (image.ok()) {
    ++rereads_saved_;
    return image;
  }
  if (image.status().code() != StatusCode::corruption) return image;
  Status moved = move_away(name.id, file_name(name));
  if (!moved.ok()) return not_moved(image.status(), moved);
  return image;
}

Status VerifiedReader::move_away(const Id& id, const std::string& file) {
  ++corruptions_;
  catalog_.remove(std::span(&file, 1));
  Status moved = quarantine_.take(dir_.file_path(id, file), file);
  dir_.mark_dirty(folder_of(id));
  (void)dir_.measure_all();  // charged for if it fails
  return moved;
}

// Reads from the device and not from memory, and leaves nothing in the page cache.
Status VerifiedReader::verify(const std::string& file) {
  auto name = parse_file_name(file);
  if (!name) return invalid_argument(file + ": no file of a store has this name");
  std::string path = dir_.file_path(name->object.id, file);
  drop_cached(dir_.files(), path);
  Status status =
      is_record(name->kind) ? verify_record(*name, file) : read(name->object, {}).status();
  drop_cached(dir_.files(), path);
  return status;
}

Status VerifiedReader::read_record(const ParsedName& name, const std::string& path) {
  const Id& id = name.object.id;
  if (name.kind == FileKind::profile) {
    return read_profile(dir_.files(), path, id, dir_.key()).status();
  }
  return read_model_record(dir_.files(), path, id, name.serial, dir_.key()).status();
}

Status VerifiedReader::verify_record(const ParsedName& name, const std::string& file) {
  std::string path = dir_.file_path(name.object.id, file);
  Status status = read_record(name, path);
  if (status.code() != StatusCode::corruption) return status;
  std::lock_guard lock(writer_mutex_);
  status = read_record(name, path);
  if (status.code() != StatusCode::corruption) return status;
  Status moved = move_away(name.object.id, file);
  return moved.ok() ? status : not_moved(status, moved);
}

void VerifiedReader::count(SsdStats& out) const {
  out.reads = reads_;
  out.bytes_read = bytes_read_;
  out.read_errors = read_errors_;
  out.corruptions = corruptions_;
  out.rereads_saved = rereads_saved_;
}

}  // namespace kv
