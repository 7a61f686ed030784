// SsdOptions: how a store's directory is opened, and the limits that go with it. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "storage/beside.h"
#include "storage/files.h"
#include "storage/seal_key.h"

namespace kv {

/// Steps of a put or an erase, for tests that stop there. FORMAT.md, "Publish and delete".
enum class Step : uint8_t {
  temp_created,     ///< an empty temporary file exists
  temp_first_byte,  ///< the first bytes are written
  temp_synced,      ///< complete and on the device
  renamed,          ///< visible under its name
  folders_synced,   ///< the name is on the device too (durable only)
  row_written,      ///< the catalog knows it
  row_removed,      ///< erase: the catalog has forgotten it
  unlinked,         ///< erase: the name is gone
};
using StepObserver = std::function<void(Step, const std::string& file_name)>;

inline constexpr uint64_t kMinLimitBytes = 8ull << 20;  ///< smaller directories aren't opened
/// Kept free below the limit so that deletes and bookkeeping always find room.
inline constexpr uint64_t kHeadroomBytes = 2ull << 20;
inline constexpr size_t kMaxBatchFiles = 64;  ///< open temporary files at a time within one put

struct SsdOptions {
  uint64_t limit_bytes = 0;                 ///< limit of allocated bytes in the directory
  uint64_t min_free_bytes = 0;              ///< left free on the file system by puts
  uint64_t quarantine_bytes = 64ull << 20;  ///< limit of damaged files kept for inspection
  /// Files without a good row whose headers recover() reads; adopt_more() reads the others.
  uint64_t adopt_at_start = UINT64_MAX;
  bool reindex = false;  ///< recover() reads every header and writes the catalog anew, with the old
                         ///< one's recency
  int64_t hour = 0;  ///< current hour since 1970 (UTC): recover() tells what was written in the day
  /// Key that seals every file and row that is written; null: they are plain. Plain files are read
  /// in any case.
  std::shared_ptr<const SealKey> key;
  Files* files = nullptr;   ///< nullptr: the operating system
  size_t read_buffers = 4;  ///< buffers of 4 MiB for reads: at most kMostReadBuffers
  RunBeside beside;         ///< recover() lists the folders there while it reads the catalog; null:
                            ///< one after the other
  StepObserver observer;    ///< called inside put and erase; may not call the tier
};

}  // namespace kv
