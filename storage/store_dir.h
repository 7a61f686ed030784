// StoreDir: paths of one store's directory, its key, and the allocated bytes of its folders in the
// ledger.
//
// Internal to storage/. Folders grow as names are added to them; they are measured again after
// every batch of changes. Not thread-safe except for the paths and files_after(): writers hold the
// tier's lock.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "storage/file_names.h"
#include "storage/files.h"
#include "storage/ledger.h"
#include "storage/seal_key.h"

namespace kv {

/// Growth of the folders that a batch touches, per file: two blocks in tmp/ and up to three in the
/// target when a directory leaf splits, of 4 KiB each.
inline constexpr uint64_t kFolderGrowthBytes = 5 * 4096;

class StoreDir {
 public:
  /// `key`: what is written is sealed with; null: nothing is.
  StoreDir(std::string path, Files& files, Ledger& ledger, std::shared_ptr<const SealKey> key,
           uint64_t min_free_bytes)
      : path_(std::move(path)),
        files_(files),
        ledger_(ledger),
        key_(std::move(key)),
        min_free_bytes_(min_free_bytes) {
    sizes_.fill(0);
  }

  const std::string& path() const { return path_; }
  Files& files() const { return files_; }
  Ledger& ledger() const { return ledger_; }
  const SealKey* key() const { return key_.get(); }
  std::string folder_path(uint32_t folder) const { return path_ + "/" + folder_name(folder); }
  std::string file_path(const Id& id, const std::string& name) const {
    return folder_path(folder_of(id)) + "/" + name;
  }
  std::string temp_folder() const { return path_ + "/" + kTempFolder; }
  std::string quarantine_folder() const { return path_ + "/" + kQuarantineFolder; }
  std::string catalog_path() const { return path_ + "/" + kCatalogFile; }

  /// The next files of the store (at least one, at most `most`) in the order of their names after
  /// `name`; none after the last. Any thread. Returns: io_error.
  Result<std::vector<ListedFile>> files_after(const std::string& name, size_t most) const;
  /// Unlinks every temporary file and syncs their folder. Their bytes stay charged until the next
  /// start. Returns: io_error (how many are left, and why the first of them).
  Status remove_temps();

  /// The file system has `room` bytes beside those that are kept free. Returns:
  /// resource_exhausted (names both), io_error.
  Status check_free(uint64_t room) const;
  /// Creates the folders that are missing.
  Status make_folders();
  /// Measures folders again: all of them, or those that a change of names in `folder` touched. One
  /// that can't be measured is charged what a batch may have added. Returns: the first error.
  Status measure_all();
  void measure(uint32_t folder);

  /// Names were added to or removed from `folder` since it was last synced.
  void mark_dirty(uint32_t folder) { dirty_[folder] = true; }
  void mark_all_dirty() { dirty_.fill(true); }
  /// fsync of `folder` if it is dirty. Returns: io_error; it stays dirty then.
  Status sync_folder(uint32_t folder);
  /// sync_folder for all. Returns the first error after trying each.
  Status sync_folders();

 private:
  Status make_folder(const std::string& path);
  // Places behind the 16 folders.
  static constexpr uint32_t kTempPlace = kFolders, kQuarantinePlace = kFolders + 1,
                            kOwnPlace = kFolders + 2;
  std::string measured_path(uint32_t place) const;
  Status measure_place(uint32_t place);

  std::string path_;
  Files& files_;
  Ledger& ledger_;
  const std::shared_ptr<const SealKey> key_;
  const uint64_t min_free_bytes_;
  std::array<uint64_t, kOwnPlace + 1> sizes_;  // bytes by place
  std::array<bool, kFolders> dirty_{};
};

}  // namespace kv
