// Folders: creation, sizes and syncs.
#include "storage/store_dir.h"

namespace kv {

Status StoreDir::check_free(uint64_t room) const {
  if (min_free_bytes_ == 0) return {};
  KV_ASSIGN_OR_RETURN(uint64_t free, files_.free_bytes(path_));
  if (free >= min_free_bytes_ && free - min_free_bytes_ >= room) return {};
  return {StatusCode::resource_exhausted,
          "file system: " + std::to_string(room) + " bytes needed, " + std::to_string(free) +
              " free, of which min_free_bytes " + std::to_string(min_free_bytes_) + " are kept"};
}

// One that is a link would have files elsewhere written, and removed.
Status StoreDir::make_folder(const std::string& path) {
  KV_RETURN_IF_ERROR(files_.make_dir(path));
  KV_ASSIGN_OR_RETURN(FileInfo info, files_.stat(path));
  if (!info.is_dir) {
    return invalid_argument(path +
                            " is no directory (a link?): the store's folders must be its own");
  }
  if ((info.mode & 022) == 0) return {};
  return invalid_argument(path + ": others than its owner may write there: chmod go-w " + path);
}

Status StoreDir::make_folders() {
  for (uint32_t f = 0; f < kFolders; ++f) KV_RETURN_IF_ERROR(make_folder(folder_path(f)));
  KV_RETURN_IF_ERROR(make_folder(temp_folder()));
  KV_RETURN_IF_ERROR(make_folder(quarantine_folder()));
  return files_.sync_dir(path_);
}

std::string StoreDir::measured_path(uint32_t place) const {
  if (place < kFolders) return folder_path(place);
  if (place == kTempPlace) return temp_folder();
  return place == kQuarantinePlace ? quarantine_folder() : path_;
}

Status StoreDir::measure_place(uint32_t place) {
  uint64_t& size = sizes_[place];
  auto info = files_.stat(measured_path(place));
  uint64_t now = info.ok() ? info->allocated_bytes : size + kFolderGrowthBytes;
  ledger_.replace(size, now);
  size = now;
  return info.status();
}

Status StoreDir::measure_all() {
  Status first;
  for (uint32_t place = 0; place < sizes_.size(); ++place) {
    Status status = measure_place(place);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

void StoreDir::measure(uint32_t folder) {
  // An error is charged for; the next measurement corrects it.
  (void)measure_place(folder);
  (void)measure_place(kTempPlace);
}

Status StoreDir::sync_folder(uint32_t folder) {
  if (!dirty_[folder]) return {};
  KV_RETURN_IF_ERROR(files_.sync_dir(folder_path(folder)));
  dirty_[folder] = false;
  return {};
}

Status StoreDir::sync_folders() {
  Status first;
  for (uint32_t f = 0; f < kFolders; ++f) {
    Status status = sync_folder(f);
    if (first.ok()) first = std::move(status);
  }
  return first;
}

}  // namespace kv
