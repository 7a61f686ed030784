// inspect: a store's directory read from outside, for cachectl. Never writes, locks or creates.
//
// Input is the files alone (the catalog adds nothing but recency), through the same decoders as the
// tier. `key` opens sealed files; null: none. Safe beside a running owner: a file that vanishes
// meanwhile is skipped. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "storage/block_file.h"
#include "storage/files.h"
#include "storage/record_file.h"
#include "storage/seal_key.h"

namespace kv {

enum class InspectDepth : uint8_t {
  headers,  ///< prefix and header of each file
  verify,   ///< every byte
};

/// A file under one of the 16 folders.
struct InspectedFile {
  std::string path;  ///< relative to the directory
  Status
      status;  ///< ok; corruption with the reason; unsupported (foreign name or version); io_error
  FileKind kind = FileKind::block;
  ObjectName name;                 ///< read off the file name; records: id only
  uint64_t serial = 0;             ///< model records
  std::optional<KeyId> other_key;  ///< sealed with it, and that is not the given one: unsupported
  uint64_t file_bytes = 0;
  uint64_t allocated_bytes = 0;
  int64_t modified_ns = 0;                   ///< when it was written, since 1970
  uint64_t unpacked_bytes = 0;               ///< objects: planes and states in memory
  Object header;                             ///< objects, if ok: planes without bytes
  std::vector<Piece> pieces;                 ///< objects, if ok: packing and sizes, no bytes
  std::shared_ptr<const Profile> profile;    ///< profile files, if ok
  std::shared_ptr<const ModelRecord> model;  ///< model records, if ok
};

/// A file that is no part of the store: in tmp/ or quarantine/.
struct StrayFile {
  std::string path;  ///< relative to the directory
  uint64_t file_bytes = 0;
  uint64_t allocated_bytes = 0;
};

struct InspectTotals {
  struct PerKind {
    uint64_t files = 0, file_bytes = 0, allocated_bytes = 0, unpacked_bytes = 0;
  };
  std::map<std::string, PerKind> kinds;  ///< key: to_string(FileKind); without damaged files
  uint64_t damaged_files = 0;
  uint64_t unknown_files = 0;    ///< foreign names and other versions
  uint64_t other_key_files = 0;  ///< sealed with another key than the given one
  uint64_t other_key_bytes = 0;  ///< allocated by them
  uint64_t directory_bytes = 0;  ///< allocated, of everything in the directory
};

struct Inspection {
  std::vector<InspectedFile> files;    ///< sorted by path
  std::vector<StrayFile> temporary;    ///< files of a write under way, or of a dead process
  std::vector<StrayFile> quarantined;  ///< oldest first
  InspectTotals totals;
};

/// Calls work(i) once for each i below `count`, and returns when all have returned.
using RunAll = std::function<void(uint32_t count, const std::function<void(uint32_t)>& work)>;
void run_in_order(uint32_t count, const std::function<void(uint32_t)>& work);

/// `run` reads the folders, one by one or, with `files` that any thread may call, on threads of the
/// caller's: of heads, most of the work is system calls, one file after the other. Returns:
/// not_found (no such directory), invalid_argument (it holds no store), io_error.
Result<Inspection> inspect_directory(const std::string& directory, InspectDepth depth,
                                     const SealKey* key = nullptr, Files& files = posix_files(),
                                     const RunAll& run = run_in_order);
/// Reads a file of Inspection::quarantined again, to find its defect. Returns: corruption with the
/// reason; ok if it verifies (its content was found wrong); not_found; unsupported (not the
/// store's, or sealed with another key); io_error.
Status inspect_quarantined(const std::string& directory, const StrayFile& file,
                           const SealKey* key = nullptr, Files& files = posix_files());
/// Reads one object, every byte verified; nothing is quarantined. Returns: not_found, corruption,
/// unsupported, io_error.
Result<FileImage> inspect_object(const std::string& directory, const ObjectName& name,
                                 const SealKey* key = nullptr, Files& files = posix_files());

}  // namespace kv
