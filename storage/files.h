// Files: the one seam through which the SSD tier touches the file system.
//
// Every system call of storage/ goes through here (SQLite's own excepted), so that tests can fail,
// cut short or kill at any single call. PosixFiles is the real one; it holds no state: any thread.
// Created files are 0600 and directories 0700 from their first moment; nothing follows a symlink in
// its last component. No call retries except on EINTR.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "proto/status.h"

namespace kv {

struct FileInfo {
  uint64_t bytes = 0;            ///< length
  uint64_t allocated_bytes = 0;  ///< st_blocks * 512: what the limit counts
  int64_t modified_ns = 0;       ///< mtime: the order in which files were written
  int64_t changed_ns = 0;        ///< ctime: a rename counts
  uint32_t mode = 0;             ///< st_mode
  uint32_t owner = 0;            ///< st_uid
  bool is_file = false, is_dir = false;
};

/// A directory entry. `type_known` is false on file systems that don't tell without a stat.
struct DirEntry {
  std::string name;
  bool is_file = false, is_dir = false, type_known = false;
};

/// A directory entry with its stat, in one walk of the folder.
struct ListedFile {
  std::string name;
  FileInfo info;
  bool readable = false;  ///< false: its stat failed, `info` says nothing
};

inline constexpr size_t kDirectAlign = 4096;  ///< for direct reads; no device asks for more

/// An open descriptor, or -1. The caller closes it through Files::close.
using Fd = int;

/// Errors of every call: not_found (ENOENT), resource_exhausted (ENOSPC, EDQUOT, EFBIG: making
/// room may help), busy (a lock that another holds), else io_error; the message names call, path
/// and errno.
class Files {
 public:
  virtual ~Files() = default;

  /// A new file for writing; fails if the name exists.
  virtual Result<Fd> create(const std::string& path) = 0;
  virtual Result<Fd> open_read(const std::string& path) = 0;
  /// Opens for one pass over the whole file, past the page cache (which would take longer and push
  /// out others' pages) unless all of it is there. Reads keep memory, offset and length multiples
  /// of kDirectAlign for that; others work, through the page cache. Returns: as open_read.
  virtual Result<Fd> open_stream(const std::string& path) { return open_read(path); }
  /// Bytes written: may be fewer than given, never 0 for a non-empty span.
  virtual Result<size_t> pwrite(Fd fd, std::span<const uint8_t> bytes, uint64_t offset) = 0;
  /// Bytes read: may be fewer than asked for; 0 only at the end of the file.
  virtual Result<size_t> pread(Fd fd, std::span<uint8_t> into, uint64_t offset) = 0;
  /// Blocks for [0, bytes) before they are written; ok where the file system can't.
  virtual Status allocate(Fd fd, uint64_t bytes) = 0;
  /// A hint that what was written may go to the device by now: waits for nothing, and doing nothing
  /// is right too.
  virtual void write_behind(Fd) {}
  /// A hint that the file's bytes in memory may go, so that the next read asks the device.
  virtual void drop_cached(Fd) {}
  virtual Status fdatasync(Fd fd) = 0;
  virtual Status sync_dir(const std::string& path) = 0;
  virtual void close(Fd fd) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  virtual Status unlink(const std::string& path) = 0;
  virtual Result<std::vector<DirEntry>> list(const std::string& path) = 0;
  virtual Result<std::vector<ListedFile>> list_files(const std::string& path) = 0;
  virtual Result<FileInfo> stat(const std::string& path) = 0;
  virtual Result<FileInfo> stat(Fd fd) = 0;
  /// Bytes that this user may still allocate on the file system of `path`.
  virtual Result<uint64_t> free_bytes(const std::string& path) = 0;
  /// ok if it exists already.
  virtual Status make_dir(const std::string& path) = 0;
  /// Creates `path` if need be and takes an exclusive lock that ends with the descriptor or the
  /// process. Returns: busy if another holds it.
  virtual Result<Fd> lock(const std::string& path) = 0;
  /// The same of a directory that is there: what is removed from it, and put there again, changes
  /// nothing. Returns: busy; -1 where the file system can't.
  virtual Result<Fd> lock_dir(const std::string& path) = 0;
};

/// The operating system. One instance for the process.
Files& posix_files();

/// Writes all of `bytes` from `offset`, through short writes. Returns: what pwrite returns.
Status write_all(Files& files, Fd fd, std::span<const uint8_t> bytes, uint64_t offset);
/// Fills `into` from `offset`. Returns: corruption if the file ends before, else what pread
/// returns.
Status read_all(Files& files, Fd fd, std::span<uint8_t> into, uint64_t offset);

/// Closes a descriptor at the end of a scope.
class FdGuard {
 public:
  FdGuard(Files& files, Fd fd) : files_(files), fd_(fd) {}
  ~FdGuard() {
    if (fd_ >= 0) files_.close(fd_);
  }
  FdGuard(const FdGuard&) = delete;  // owns the descriptor
  FdGuard& operator=(const FdGuard&) = delete;
  Fd get() const { return fd_; }
  void release() { fd_ = -1; }  ///< the caller closes it

 private:
  Files& files_;
  Fd fd_;
};

}  // namespace kv
