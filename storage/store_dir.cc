// Folders: creation, sizes and syncs.
#include "storage/store_dir.h"

namespace kv {

Status StoreDir::make_folders() {
  for (uint32_t f = 0; f < kFolders; ++f) {
    KV_RETURN_IF_ERROR(files_.make_dir(folder_path(f)));
  }
  KV_RETURN_IF_ERROR(files_.make_dir(temp_folder()));
  KV_RETURN_IF_ERROR(files_.make_dir(quarantine_folder()));
  return files_.sync_dir(path_);
}

Status StoreDir::measure_path(const std::string& path, uint64_t& size) {
  auto info = files_.stat(path);
  uint64_t now = info.ok() ? info->allocated_bytes : size + kFolderGrowthBytes;
  ledger_.replace(size, now);
  size = now;
  return info.ok() ? Status() : info.status();
}

Status StoreDir::measure_all() {
  Status first = measure_path(path_, sizes_[kFolders + 2]);
  for (uint32_t f = 0; f < kFolders; ++f) {
    Status status = measure_path(folder_path(f), sizes_[f]);
    if (first.ok()) first = std::move(status);
  }
  Status status = measure_path(quarantine_folder(), sizes_[kFolders + 1]);
  if (first.ok()) first = std::move(status);
  status = measure_path(temp_folder(), sizes_[kFolders]);
  return first.ok() ? status : first;
}

void StoreDir::measure(uint32_t folder) {
  // An error is charged for; the next measurement corrects it.
  (void)measure_path(folder_path(folder), sizes_[folder]);
  (void)measure_path(temp_folder(), sizes_[kFolders]);
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
