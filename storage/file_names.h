// File names of the store, and the names of its folders. FORMAT.md, "Names".
//
// A name follows from an id and vice versa, so a directory listing alone says which objects there
// are. Names are made of hex digits, decimal numbers and fixed words only: no input can form a
// path. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "proto/plane.h"

namespace kv {

/// The byte that a file begins with after its magic and version. FORMAT.md, "Prefix".
enum class FileKind : uint8_t {
  block = 1,  ///< 1…4 are ObjectKind's values
  tail = 2,
  supplement = 3,
  snapshot = 4,
  profile = 16,
  model_record = 17,
};
const char* to_string(FileKind kind);
/// A profile or model record; all others are objects.
inline bool is_record(FileKind kind) {
  return kind == FileKind::profile || kind == FileKind::model_record;
}

inline constexpr uint32_t kFolders = 16;  ///< by the first hex digit of the id
inline constexpr const char* kTempFolder = "tmp";
inline constexpr const char* kQuarantineFolder = "quarantine";
inline constexpr const char* kLockFile = "LOCK";
inline constexpr const char* kCatalogFile = "catalog.db";
inline constexpr const char* kTempSuffix = ".tmp";

/// A parsed file name. For objects `object` is the whole name; for records its id alone counts.
struct ParsedName {
  FileKind kind = FileKind::block;
  ObjectName object;
  uint64_t serial = 0;  ///< model_record only
};

/// "ID.block", "ID.tail", "ID.snapshot", "ID.GROUP.FIRST-END.supplement" (ID: 64 hex digits).
std::string file_name(const ObjectName& name);
std::string profile_file_name(const Id& profile);                      ///< "ID.profile"
std::string model_record_file_name(const Id& model, uint64_t serial);  ///< "ID.SERIAL.model"
/// nullopt unless some object or record has exactly this name.
std::optional<ParsedName> parse_file_name(std::string_view name);

/// 0…15: the folder that holds everything with this id.
uint32_t folder_of(const Id& id);
/// "0" … "f".
std::string folder_name(uint32_t folder);
/// "f/ID.block": relative to the store's directory.
std::string relative_path(const ObjectName& name);

}  // namespace kv
