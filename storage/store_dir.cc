// Folders: creation, sizes and syncs.
#include "storage/store_dir.h"

#include <algorithm>

namespace kv {

Status StoreDir::check_free(uint64_t room) const {
  if (min_free_bytes_ == 0) return {};
  KV_ASSIGN_OR_RETURN(uint64_t free, files_.free_bytes(path_));
  if (free >= min_free_bytes_ && free - min_free_bytes_ >= room) return {};
  return {StatusCode::resource_exhausted,
          "file system: " + std::to_string(room) + " bytes needed, " + std::to_string(free) +
              " free, of which min_free_bytes " + std::to_string(min_free_bytes_) + " are kept"};
}

// Makes a folder. A link is refused: files elsewhere would be written, and removed.
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
  // A failed measurement charges the bound; the next one corrects it.
  (void)measure_place(folder);
  (void)measure_place(kTempPlace);
}

// Folders are read one at a time, the first `most` names of each are kept.
Result<std::vector<ListedFile>> StoreDir::files_after(const std::string& name, size_t most) const {
  std::vector<ListedFile> out;
  auto after = parse_file_name(name);
  for (uint32_t folder = after ? folder_of(after->object.id) : 0; folder < kFolders; ++folder) {
    KV_ASSIGN_OR_RETURN(auto listed, files_.list(folder_path(folder)));
    std::erase_if(listed,
                  [&](const DirEntry& e) { return e.name <= name || !parse_file_name(e.name); });
    auto by_name = [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; };
    auto end = listed.begin() + static_cast<ptrdiff_t>(std::min(most, listed.size()));
    std::partial_sort(listed.begin(), end, listed.end(), by_name);
    for (auto e = listed.begin(); e != end; ++e) {
      auto info = files_.stat(folder_path(folder) + "/" + e->name);
      bool readable = info.ok();
      out.push_back({std::move(e->name), readable ? *info : FileInfo(), readable});
    }
    if (!out.empty()) break;
  }
  return out;
}

Status StoreDir::remove_temps() {
  KV_ASSIGN_OR_RETURN(auto listed, files_.list(temp_folder()));
  Status first;
  size_t left = 0;
  for (const auto& entry : listed) {
    if (!entry.name.ends_with(kTempSuffix)) continue;
    Status status = files_.unlink(temp_folder() + "/" + entry.name);
    left += !status.ok();
    if (first.ok()) first = std::move(status);
  }
  Status synced = files_.sync_dir(temp_folder());
  if (first.ok()) return synced;
  return {first.code(), std::to_string(left) + " temporary files are left: " + first.message()};
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
