// SsdStats: counters of the tier and its parts. A plain value.
#pragma once

#include <cstdint>

namespace kv {

/// Counters since open, and gauges. Bytes are allocated bytes.
struct SsdStats {
  uint64_t limit_bytes = 0;
  uint64_t used_bytes = 0;      ///< all bytes of the directory
  uint64_t reserved_bytes = 0;  ///< promised to writes under way and to the catalog's growth
  uint64_t quarantine_bytes = 0, quarantine_files = 0;
  uint64_t unknown_bytes = 0;                         ///< counted by recover()
  uint64_t other_key_files = 0, other_key_bytes = 0;  ///< sealed with another key
  uint64_t other_key_dropped = 0;                     ///< files of these removed to make room
  uint64_t files_written = 0, bytes_written = 0;      ///< lengths of published files
  /// Bytes given to the device: file bytes, also of files that failed, and the catalog's pages (to
  /// its log, and at most as many to the database).
  uint64_t device_bytes_written = 0, catalog_bytes_written = 0;
  uint64_t reads = 0, bytes_read = 0;
  uint64_t read_errors = 0;    ///< I/O errors
  uint64_t corruptions = 0;    ///< files that failed twice and left the store
  uint64_t rereads_saved = 0;  ///< files that failed once and then verified
  uint64_t put_failures = 0;
  uint64_t erased = 0;
  uint64_t catalog_failures = 0;  ///< the catalog could not follow; the next recover() repairs it
};

}  // namespace kv
