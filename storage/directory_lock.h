// DirectoryLock: checks of a store's directory, and the locks that make it one owner's.
//
// The tier has the locks for its whole life. The directory's own lock stays if the file LOCK is
// removed; earlier versions know only the file's.
#pragma once

#include <memory>
#include <string>

#include "storage/files.h"

namespace kv {

class DirectoryLock {
 public:
  /// Returns: busy (another process or tier has it), invalid_argument (of another user, writable
  /// for others, or neither empty nor a store), io_error.
  static Result<std::unique_ptr<DirectoryLock>> take(Files& files, const std::string& directory);

 private:
  DirectoryLock(Files& files, Fd directory, Fd file)
      : directory_(files, directory), file_(files, file) {}
  FdGuard directory_, file_;
};

}  // namespace kv
