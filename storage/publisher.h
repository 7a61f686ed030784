// Publisher: the steps that turn bytes into a visible file. FORMAT.md, "Publish and delete".
//
//   write_temp  room in the ledger -> tmp/N.tmp with every byte
//   sync_temp   fdatasync: only now may it become visible
//   publish     rename to its name; the ledger's promise becomes its measured size
//   remove      the name goes, its bytes leave the ledger
// A temporary file that fails or is dropped leaves neither bytes nor promises behind (an unlink
// that fails stays charged). Internal to storage/; called under the tier's writer lock.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "storage/block_file.h"
#include "storage/other_keys.h"
#include "storage/sealed_file.h"
#include "storage/ssd_options.h"
#include "storage/store_dir.h"

namespace kv {

/// A file on its way. Filled by write_temp; every one ends in publish or abandon.
struct PendingFile {
  std::string name;             ///< file name
  Id id;                        ///< decides its folder
  std::string temp_path;        ///< empty before write_temp and after publish or abandon
  std::optional<FdGuard> file;  ///< open from write_temp to sync_temp
  uint64_t reserved = 0;        ///< promised by the ledger
  uint64_t bytes = 0;
  uint64_t allocated_bytes = 0;  ///< set by publish
};

/// Upper bound of what a file of `bytes` takes while it is being published: whole blocks, extents,
/// growth of folders.
uint64_t file_room(uint64_t bytes);

class Publisher {
 public:
  Publisher(StoreDir& dir, OtherKeys& others, StepObserver observer);

  /// `extra_room`: promised to whatever else the caller does for this file (its catalog row); given
  /// back with the rest. Files of other keys make room if need be. Returns: resource_exhausted
  /// (limit or disk; names needed and limit), io_error.
  Status write_temp(const EncodedFile& file, uint64_t extra_room, PendingFile& pending);
  Status sync_temp(PendingFile& pending);
  /// Replaces a file of that name. The promise stays until settle().
  Status publish(PendingFile& pending);
  /// Ends the promise: the file's own bytes are counted by then.
  void settle(PendingFile& pending);
  /// Removes what is there of it. Harmless after settle().
  void abandon(PendingFile& pending);

  /// Unlinks a file. Its folder is not synced. Returns: its allocated bytes; not_found, io_error.
  Result<uint64_t> remove(const Id& id, const std::string& name);

  /// Bytes written to all temporary files. Any thread.
  uint64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }

  /// Files, any thread.
  uint64_t removed() const { return removed_.load(std::memory_order_relaxed); }

  void observe(Step step, const std::string& name) const {
    if (observer_) observer_(step, name);
  }

 private:
  Status check_room(uint64_t room);
  Status try_write_temp(const EncodedFile& file, uint64_t extra_room, PendingFile& pending);
  Status write_pieces(const EncodedFile& file, const PendingFile& pending);

  StoreDir& dir_;
  OtherKeys& others_;
  StepObserver observer_;
  uint64_t next_temp_ = 0;
  std::atomic<uint64_t> bytes_written_{0}, removed_{0};
  std::vector<uint8_t> run_;  // buffer of writes under way; has all its memory from the start
};

}  // namespace kv
