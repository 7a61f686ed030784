// The directory's modes, owner and content, and flock(2) on it and on its file.
#include "storage/directory_lock.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "storage/file_names.h"

namespace kv {
namespace {

// Refuses a directory that others may write: they could replace any file, also by a link.
Status check_modes(Files& files, const std::string& directory) {
  KV_ASSIGN_OR_RETURN(FileInfo info, files.stat(directory));
  if ((info.mode & 022) == 0) return {};
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", info.mode & 07777);
  return invalid_argument("ssd directory " + directory + ": mode " + mode +
                          ", others than its owner may write there: chmod go-w " + directory);
}

Status lock_error(const std::string& directory, const Status& status) {
  if (status.code() != StatusCode::busy) return status;
  return {StatusCode::busy, "ssd directory " + directory +
                                " is in use by another process (it holds " + kLockFile + ")"};
}

// A directory that is no store must be empty: the limit counts all that is in it.
Status check_directory(Files& files, const std::string& directory) {
  KV_ASSIGN_OR_RETURN(FileInfo info, files.stat(directory));
  if (!info.is_dir) return invalid_argument("ssd directory " + directory + " is no directory");
  if (info.owner != ::geteuid()) {
    return invalid_argument("ssd directory " + directory + " belongs to user " +
                            std::to_string(info.owner) + ", this process runs as " +
                            std::to_string(::geteuid()));
  }
  KV_RETURN_IF_ERROR(check_modes(files, directory));
  KV_ASSIGN_OR_RETURN(auto listed, files.list(directory));
  bool store = std::any_of(listed.begin(), listed.end(),
                           [](const DirEntry& e) { return e.name == kLockFile; });
  for (const auto& entry : listed) {
    if (store || entry.name == "lost+found") continue;
    return invalid_argument("ssd directory " + directory + " holds " + entry.name +
                            " and no store: give an empty directory");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<DirectoryLock>> DirectoryLock::take(Files& files,
                                                           const std::string& directory) {
  KV_RETURN_IF_ERROR(check_directory(files, directory));
  auto dir_lock = files.lock_dir(directory);
  if (!dir_lock.ok()) return lock_error(directory, dir_lock.status());
  FdGuard own_dir(files, *dir_lock);
  auto file_lock = files.lock(directory + "/" + kLockFile);
  if (!file_lock.ok()) return lock_error(directory, file_lock.status());
  FdGuard own_file(files, *file_lock);
  std::unique_ptr<DirectoryLock> lock(new DirectoryLock(files, *dir_lock, *file_lock));
  own_dir.release();
  own_file.release();
  return lock;
}

}  // namespace kv
