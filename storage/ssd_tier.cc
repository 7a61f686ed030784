// The tier: its parts, their locks, and the calls that need several of them.
#include "storage/ssd_tier.h"

#include <algorithm>
#include <chrono>
#include <new>

#include "storage/recovery_scan.h"

namespace kv {
namespace {

constexpr uint64_t kQuarantineShare = 8;  // damaged files take at most limit_bytes / 8
constexpr size_t kEraseBatch = 64;        // rows that go before their files do

}  // namespace

Result<std::unique_ptr<SsdTier>> SsdTier::open(const std::string& directory, SsdOptions options) {
  if (options.limit_bytes < kMinLimitBytes) {
    return invalid_argument("ssd limit_bytes " + std::to_string(options.limit_bytes) +
                            " is below " + std::to_string(kMinLimitBytes));
  }
  Files& files = options.files != nullptr ? *options.files : posix_files();
  KV_RETURN_IF_ERROR(files.make_dir(directory));
  KV_ASSIGN_OR_RETURN(auto lock, DirectoryLock::take(files, directory));
  std::unique_ptr<SsdTier> tier(new SsdTier(directory, std::move(options), files, std::move(lock)));
  KV_RETURN_IF_ERROR(tier->dir_.make_folders());
  return tier;
}

SsdTier::SsdTier(const std::string& directory, SsdOptions options, Files& files,
                 std::unique_ptr<DirectoryLock> lock)
    : options_(std::move(options)),
      lock_(std::move(lock)),
      ledger_(options_.limit_bytes, kHeadroomBytes),
      dir_(directory, files, ledger_, options_.key, options_.min_free_bytes),
      quarantine_(dir_,
                  std::min(options_.quarantine_bytes, options_.limit_bytes / kQuarantineShare)),
      catalog_(dir_, quarantine_),
      other_keys_(dir_),
      publisher_(dir_, other_keys_, options_.observer),
      reader_(dir_, catalog_, quarantine_, writer_mutex_, options_.read_buffers),
      objects_(dir_, publisher_, catalog_, reader_),
      records_(dir_, publisher_),
      adoption_(dir_, catalog_, quarantine_, other_keys_) {
  dir_.mark_all_dirty();  // the last owner's syncs are unknown
}

// The catalog is closed before the lock is given up: the next owner finds it free.
SsdTier::~SsdTier() {
  std::lock_guard lock(writer_mutex_);
  try {
    catalog_.flush_touches();
    catalog_.write_state();
  } catch (const std::bad_alloc&) {  // lost: only recency, and the state since the last checkpoint
  }
}

Result<Recovery> SsdTier::recover() {
  std::lock_guard lock(writer_mutex_);
  if (std::exchange(recovered_, true)) {
    return Status(StatusCode::internal, "recover() was called twice");
  }
  RecoveryScan scan(dir_, catalog_, quarantine_, adoption_, options_);
  KV_ASSIGN_OR_RETURN(Recovery found, scan.run());
  catalog_.start_recency(scan.max_recency());
  unknown_bytes_ = found.unknown_bytes;
  return found;
}

Recovery SsdTier::adopt_more(uint64_t max_files) {
  auto start = std::chrono::steady_clock::now();
  std::lock_guard lock(writer_mutex_);
  Recovery out;
  adoption_.run(std::min(max_files, kAdoptedAtATime), out);
  unknown_bytes_ += out.unknown_bytes;
  auto took = std::chrono::steady_clock::now() - start;
  out.milliseconds =
      static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(took).count());
  return out;
}

std::vector<PutResult> SsdTier::put(std::span<const FileImage> images, Durability level) {
  std::lock_guard lock(writer_mutex_);
  Status refused;
  if (!recovered_) {
    refused = Status(StatusCode::internal, "put before recover()");
  } else if (level != Durability::spilled && level != Durability::durable) {
    refused = invalid_argument("put: level must be spilled or durable");
  }
  if (refused.ok()) return objects_.put(images, level);
  PutResult none;
  none.status = std::move(refused);
  return std::vector<PutResult>(images.size(), none);
}

uint64_t SsdTier::room_needed(const FileImage& image) const { return objects_.room_needed(image); }

Result<FileImage> SsdTier::read(const ObjectName& name, const PlacePayload& place) {
  return reader_.read(name, place);
}

Result<std::vector<ListedFile>> SsdTier::files_after(const std::string& name, size_t most) {
  return dir_.files_after(name, most);
}

Status SsdTier::verify(const std::string& name) { return reader_.verify(name); }

// Rows go first: one without a file is dropped at the next start, or when the erase is repeated.
Status SsdTier::erase_batch(std::span<const ObjectName> batch, EraseReply& reply) {
  std::vector<std::string> files;
  for (const auto& name : batch) files.push_back(file_name(name));
  catalog_.remove(files);
  publisher_.observe(Step::row_removed, files.front());
  Status first_error;
  for (size_t i = 0; i < batch.size(); ++i) {
    auto freed = publisher_.remove(batch[i].id, files[i]);
    if (freed.ok()) {
      ++reply.erased;
      reply.freed_bytes += *freed;
    } else if (freed.status().code() != StatusCode::not_found && first_error.ok()) {
      first_error = freed.status();
    }
  }
  return first_error;
}

Result<EraseReply> SsdTier::erase(std::span<const ObjectName> names, bool more_follows) {
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

Status SsdTier::quarantine(const ObjectName& name) {
  std::lock_guard lock(writer_mutex_);
  std::string file = file_name(name);
  KV_RETURN_IF_ERROR(dir_.files().stat(dir_.file_path(name.id, file)).status());
  KV_RETURN_IF_ERROR(reader_.move_away(name.id, file));
  return dir_.sync_folder(folder_of(name.id));
}

void SsdTier::touch(std::span<const ObjectName> names) {
  std::lock_guard lock(writer_mutex_);
  catalog_.touch(names);
}

void SsdTier::note(std::span<const NotedName> notes) {
  std::lock_guard lock(writer_mutex_);
  catalog_.note(notes);
}

Status SsdTier::sync() {
  std::lock_guard lock(writer_mutex_);
  return sync_now();
}

Status SsdTier::sync_now() {
  Status status = dir_.sync_folders();
  if (std::exchange(unmeasured_, false)) (void)dir_.measure_all();  // charged for if it fails
  return status;
}

Status SsdTier::checkpoint() {
  std::lock_guard lock(writer_mutex_);
  catalog_.flush_touches();
  return catalog_.checkpoint();
}

// Temporary files of now could not be unlinked when their puts failed: no put is under way.
Status SsdTier::wipe() {
  std::lock_guard lock(writer_mutex_);
  catalog_.flush_touches();
  Status status = dir_.remove_temps();
  Status cleared = quarantine_.clear();
  if (status.ok()) status = cleared;
  Status compacted = catalog_.compact();
  while (compacted.code() == StatusCode::resource_exhausted &&
         other_keys_.make_room(catalog_.room_to_compact())) {
    compacted = catalog_.compact();
  }
  if (status.ok()) status = compacted;
  reader_.clear();
  (void)dir_.measure_all();  // charged for if it fails
  return status;
}

uint64_t SsdTier::wipe_room() {
  std::lock_guard lock(writer_mutex_);
  return catalog_.room_to_compact();
}

Status SsdTier::put_profile(const Profile& profile) {
  std::lock_guard lock(writer_mutex_);
  return records_.put_profile(profile);
}

Result<std::shared_ptr<const Profile>> SsdTier::read_profile(const Id& id) {
  return records_.read_profile(id);
}

Status SsdTier::erase_profile(const Id& id) {
  std::lock_guard lock(writer_mutex_);
  return records_.erase_profile(id);
}

Status SsdTier::put_model_record(const ModelRecord& record) {
  std::lock_guard lock(writer_mutex_);
  return records_.put_model_record(record);
}

Status SsdTier::erase_model_records(const Id& model) {
  std::lock_guard lock(writer_mutex_);
  return records_.erase_model_records(model);
}

SsdStats SsdTier::stats() const {
  SsdStats out;
  out.limit_bytes = ledger_.limit();
  out.used_bytes = ledger_.used();
  out.reserved_bytes = ledger_.reserved();
  out.quarantine_bytes = quarantine_.bytes();
  out.quarantine_files = quarantine_.files();
  out.unknown_bytes = unknown_bytes_;
  out.other_key_files = other_keys_.files();
  out.other_key_bytes = other_keys_.bytes();
  out.other_key_dropped = other_keys_.dropped();
  out.catalog_bytes_written = catalog_.bytes_written();
  out.device_bytes_written = publisher_.bytes_written() + out.catalog_bytes_written;
  out.erased = publisher_.removed();
  out.catalog_failures = catalog_.failures();
  objects_.count(out);
  reader_.count(out);
  return out;
}

}  // namespace kv
