// Reads, erases, records and bookkeeping of the SSD tier. Puts: directory_put.cc.
#include "storage/directory_tier.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "proto/identity.h"
#include "storage/file_reader.h"
#include "storage/object_reader.h"
#include "storage/record_reader.h"
#include "storage/recovery.h"

namespace kv {
namespace {

constexpr size_t kMaxPendingTouches = 256;
constexpr uint64_t kQuarantineShare = 8;  // at most limit_bytes / 8 of damaged files
constexpr size_t kEraseBatch = 64;        // rows that go before their files do

}  // namespace

DirectoryTier::DirectoryTier(const std::string& directory, SsdOptions options, Files& files,
                             std::array<Fd, 2> locks)
    : options_(std::move(options)),
      ledger_(options_.limit_bytes, kHeadroomBytes),
      dir_(directory, files, ledger_, options_.key, options_.min_free_bytes),
      publisher_(dir_, options_.observer),
      quarantine_(dir_,
                  std::min(options_.quarantine_bytes, options_.limit_bytes / kQuarantineShare)),
      catalog_(dir_, quarantine_),
      other_keys_(dir_),
      adoption_(dir_, catalog_, quarantine_, other_keys_),
      locks_(locks),
      buffers_(std::clamp<size_t>(options_.read_buffers, 1, kMostReadBuffers)) {
  dir_.mark_all_dirty();  // who knows what the last owner synced
}

DirectoryTier::~DirectoryTier() {
  std::lock_guard lock(writer_mutex_);
  try {
    flush_touches();
    catalog_.write_state();
  } catch (const std::bad_alloc&) {  // lost: only recency, and the state since the last checkpoint
  }
  catalog_.close();  // whoever gets the lock next finds it free
  for (Fd lock : locks_) {
    if (lock >= 0) dir_.files().close(lock);
  }
}

Result<Recovery> DirectoryTier::recover() {
  std::lock_guard lock(writer_mutex_);
  if (std::exchange(recovered_, true)) {
    return Status(StatusCode::internal, "recover() was called twice");
  }
  RecoveryScan scan(dir_, catalog_, quarantine_, adoption_, options_);
  KV_ASSIGN_OR_RETURN(Recovery found, scan.run());
  recency_ = scan.max_recency();
  counters_.unknown_bytes = found.unknown_bytes;
  return found;
}

Recovery DirectoryTier::adopt_more(uint64_t max_files) {
  auto start = std::chrono::steady_clock::now();
  std::lock_guard lock(writer_mutex_);
  Recovery out;
  adoption_.run(std::min(max_files, kAdoptedAtATime), out);
  counters_.unknown_bytes += out.unknown_bytes;
  auto took = std::chrono::steady_clock::now() - start;
  out.milliseconds =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  return out;
}

Result<FileImage> DirectoryTier::read(const ObjectName& name, const PlacePayload& place) {
  std::string path = dir_.file_path(name.id, file_name(name));
  ++counters_.reads;
  auto image = read_object(dir_.files(), buffers_, path, name, dir_.key(), {}, place);
  if (!image.ok() && image.status().code() == StatusCode::corruption) {
    std::lock_guard lock(writer_mutex_);
    image = read_again(name, path, place);
  }
  if (image.ok()) {
    counters_.bytes_read += image->stored_bytes();
  } else if (image.status().code() == StatusCode::io_error) {
    ++counters_.read_errors;
  }
  return image;
}

// The second and last try: a transient error in between disk and memory is over by now. As a
// writer, so that the file that fails is the file that is moved away.
Result<FileImage> DirectoryTier::read_again(const ObjectName& name, const std::string& path,
                                            const PlacePayload& place) {
  auto image = read_object(dir_.files(), buffers_, path, name, dir_.key(), {}, place);
  if (image.ok()) {
    ++counters_.rereads_saved;
    return image;
  }
  if (image.status().code() != StatusCode::corruption) return image;
  ++counters_.corruptions;
  Status moved = move_away(name, path);
  if (!moved.ok()) {
    return corruption(image.status().message() + "; not quarantined: " + moved.message());
  }
  return image;
}

Status DirectoryTier::move_away(const ObjectName& name, const std::string& path) {
  std::string file = file_name(name);
  catalog_.remove(std::span(&file, 1));
  touches_.erase(file);
  Status moved = quarantine_.take(path, file);
  dir_.mark_dirty(folder_of(name.id));
  (void)dir_.measure_all();  // charged for if it fails
  return moved;
}

Status DirectoryTier::quarantine(const ObjectName& name) {
  std::lock_guard lock(writer_mutex_);
  std::string path = dir_.file_path(name.id, file_name(name));
  KV_RETURN_IF_ERROR(dir_.files().stat(path).status());
  ++counters_.corruptions;
  KV_RETURN_IF_ERROR(move_away(name, path));
  return dir_.sync_folder(folder_of(name.id));
}

Status DirectoryTier::remove_file(const Id& id, const std::string& name, EraseReply& reply) {
  std::string path = dir_.file_path(id, name);
  KV_ASSIGN_OR_RETURN(FileInfo info, dir_.files().stat(path));
  KV_RETURN_IF_ERROR(dir_.files().unlink(path));
  ledger_.remove(info.allocated_bytes);
  other_keys_.forget(name);
  dir_.mark_dirty(folder_of(id));
  ++reply.erased;
  reply.freed_bytes += info.allocated_bytes;
  ++counters_.erased;
  publisher_.observe(Step::unlinked, name);
  return {};
}

// Rows first: one without a file is dropped at the next start, or when this is repeated.
Status DirectoryTier::erase_batch(std::span<const ObjectName> batch, EraseReply& reply) {
  std::vector<std::string> files;
  for (const auto& name : batch) {
    files.push_back(file_name(name));
    touches_.erase(files.back());
  }
  catalog_.remove(files);
  publisher_.observe(Step::row_removed, files.front());
  Status first_error;
  for (size_t i = 0; i < batch.size(); ++i) {
    Status status = remove_file(batch[i].id, files[i], reply);
    bool gone = status.ok() || status.code() == StatusCode::not_found;
    if (!gone && first_error.ok()) first_error = std::move(status);
  }
  return first_error;
}

Result<EraseReply> DirectoryTier::erase(std::span<const ObjectName> names, bool more_follows) {
  std::lock_guard lock(writer_mutex_);
  EraseReply reply;
  Status first_error;
  while (!names.empty()) {
    auto batch = names.first(std::min(names.size(), kEraseBatch));
    names = names.subspan(batch.size());
    Status status = erase_batch(batch, reply);
    if (first_error.ok()) first_error = std::move(status);
  }
  Status synced;
  unmeasured_ = true;
  if (!more_follows) synced = sync_now();
  if (!first_error.ok()) return first_error;
  if (!synced.ok()) return synced;
  return reply;
}

void DirectoryTier::touch(std::span<const ObjectName> names) {
  std::lock_guard lock(writer_mutex_);
  for (const auto& name : names) touches_[file_name(name)] = ++recency_;
  if (touches_.size() >= kMaxPendingTouches) flush_touches();
}

void DirectoryTier::flush_touches() {
  if (touches_.empty()) return;
  std::vector<std::pair<std::string, uint64_t>> recency(touches_.begin(), touches_.end());
  touches_.clear();
  catalog_.set_recency(recency);
}

Status DirectoryTier::sync() {
  std::lock_guard lock(writer_mutex_);
  return sync_now();
}

Status DirectoryTier::sync_now() {
  Status status = dir_.sync_folders();
  if (std::exchange(unmeasured_, false)) (void)dir_.measure_all();  // charged for if it fails
  return status;
}

Status DirectoryTier::checkpoint() {
  std::lock_guard lock(writer_mutex_);
  flush_touches();
  return catalog_.checkpoint();
}

// No put is under way: what is there could not be unlinked when its put failed.
Status DirectoryTier::remove_temps() {
  KV_ASSIGN_OR_RETURN(auto listed, dir_.files().list(dir_.temp_folder()));
  Status first;
  size_t left = 0;
  for (const auto& entry : listed) {
    if (!entry.name.ends_with(kTempSuffix)) continue;
    Status status = dir_.files().unlink(dir_.temp_folder() + "/" + entry.name);
    left += !status.ok();
    if (first.ok()) first = std::move(status);
  }
  Status synced = dir_.files().sync_dir(dir_.temp_folder());
  if (first.ok()) return synced;  // what is gone stays charged until the next start
  return {first.code(), std::to_string(left) + " temporary files are left: " + first.message()};
}

Status DirectoryTier::scrub() {
  std::lock_guard lock(writer_mutex_);
  flush_touches();
  Status status = remove_temps();
  Status cleared = quarantine_.clear();
  if (status.ok()) status = cleared;
  Status compacted = catalog_.compact();
  while (compacted.code() == StatusCode::resource_exhausted &&
         other_keys_.make_room(catalog_.room_to_compact())) {
    compacted = catalog_.compact();
  }
  if (status.ok()) status = compacted;
  buffers_.clear();
  (void)dir_.measure_all();  // charged for if it fails
  return status;
}

uint64_t DirectoryTier::scrub_room() {
  std::lock_guard lock(writer_mutex_);
  return catalog_.room_to_compact();
}

Status DirectoryTier::write_temp(const EncodedFile& file, uint64_t extra_room,
                                 PendingFile& pending) {
  Status status = publisher_.write_temp(file, extra_room, pending);
  while (status.code() == StatusCode::resource_exhausted &&
         other_keys_.make_room(file_room(file.bytes()) + extra_room)) {
    status = publisher_.write_temp(file, extra_room, pending);
  }
  return status;
}

Status DirectoryTier::put_record(const EncodedFile& file, const Id& id, const std::string& name) {
  PendingFile pending;
  pending.id = id;
  pending.name = name;
  KV_RETURN_IF_ERROR(write_temp(file, 0, pending));
  KV_RETURN_IF_ERROR(publisher_.sync_temp(pending));
  KV_RETURN_IF_ERROR(publisher_.publish(pending));
  publisher_.settle(pending);
  other_keys_.forget(name);
  return dir_.sync_folder(folder_of(id));
}

Status DirectoryTier::put_profile(const Profile& profile) {
  KV_ASSIGN_OR_RETURN(EncodedFile file, encode_profile_file(profile));
  Id id = profile.id();
  std::lock_guard lock(writer_mutex_);
  if (read_profile(id).ok()) return dir_.sync_folder(folder_of(id));
  return put_record(file, id, profile_file_name(id));
}

Result<std::shared_ptr<const Profile>> DirectoryTier::read_profile(const Id& id) {
  std::string path = dir_.file_path(id, profile_file_name(id));
  return kv::read_profile(dir_.files(), path, id, dir_.key());
}

Status DirectoryTier::erase_profile(const Id& id) {
  std::lock_guard lock(writer_mutex_);
  std::string name = profile_file_name(id);
  if (sealed_by_other(dir_.files(), dir_.file_path(id, name), dir_.key())) return {};
  EraseReply reply;
  Status status = remove_file(id, name, reply);
  if (!status.ok() && status.code() != StatusCode::not_found) return status;
  return dir_.sync_folder(folder_of(id));
}

// File names and serials of a model's records.
std::vector<std::pair<std::string, uint64_t>> DirectoryTier::serials_of(const Id& model,
                                                                        Status& status) const {
  std::vector<std::pair<std::string, uint64_t>> out;
  auto listed = dir_.files().list(dir_.folder_path(folder_of(model)));
  status = listed.ok() ? Status() : listed.status();
  if (!listed.ok()) return out;
  for (const auto& entry : *listed) {
    auto name = parse_file_name(entry.name);
    if (name && name->kind == FileKind::model_record && name->object.id == model) {
      out.emplace_back(entry.name, name->serial);
    }
  }
  return out;
}

Status DirectoryTier::put_model_record(const ModelRecord& record) {
  Id id = model_id(record.ns, record.model.fingerprint);
  std::lock_guard lock(writer_mutex_);
  Status status;
  auto serials = serials_of(id, status);
  KV_RETURN_IF_ERROR(status);
  ModelRecord newest = record;
  for (const auto& [name, serial] : serials) {
    if (serial == UINT64_MAX) return invalid_argument(name + ": no serial is higher");
    newest.serial = std::max(newest.serial, serial + 1);
  }
  KV_ASSIGN_OR_RETURN(EncodedFile file, encode_model_record(newest));
  KV_RETURN_IF_ERROR(put_record(file, id, model_record_file_name(id, newest.serial)));
  EraseReply reply;
  // The new one is durable and outranks them: whether they go now or later changes nothing.
  for (const auto& [name, serial] : serials) {
    if (sealed_by_other(dir_.files(), dir_.file_path(id, name), dir_.key())) continue;
    (void)remove_file(id, name, reply);
  }
  return {};
}

Status DirectoryTier::erase_model_records(const Id& model) {
  std::lock_guard lock(writer_mutex_);
  Status status;
  auto serials = serials_of(model, status);
  KV_RETURN_IF_ERROR(status);
  // Lowest first: if this stops half way, the record in force is still the highest.
  std::sort(serials.begin(), serials.end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  EraseReply reply;
  for (const auto& [name, serial] : serials) {
    if (sealed_by_other(dir_.files(), dir_.file_path(model, name), dir_.key())) continue;
    KV_RETURN_IF_ERROR(remove_file(model, name, reply));
  }
  return dir_.sync_folder(folder_of(model));
}

SsdStats DirectoryTier::stats() const {
  SsdStats out;
  out.limit_bytes = ledger_.limit();
  out.used_bytes = ledger_.used();
  out.reserved_bytes = ledger_.reserved();
  out.quarantine_bytes = quarantine_.bytes();
  out.quarantine_files = quarantine_.files();
  out.unknown_bytes = counters_.unknown_bytes;
  out.other_key_files = other_keys_.files();
  out.other_key_bytes = other_keys_.bytes();
  out.other_key_dropped = other_keys_.dropped();
  out.files_written = counters_.files_written;
  out.bytes_written = counters_.bytes_written;
  out.catalog_bytes_written = catalog_.bytes_written();
  out.device_bytes_written = publisher_.bytes_written() + out.catalog_bytes_written;
  out.reads = counters_.reads;
  out.bytes_read = counters_.bytes_read;
  out.read_errors = counters_.read_errors;
  out.corruptions = counters_.corruptions;
  out.rereads_saved = counters_.rereads_saved;
  out.put_failures = counters_.put_failures;
  out.erased = counters_.erased;
  out.catalog_failures = catalog_.failures();
  return out;
}

}  // namespace kv
