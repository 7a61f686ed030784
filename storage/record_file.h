// Profiles and model records as files. FORMAT.md, "Record files".
//
// A profile file is named by the hash of its payload. A model record says which profile is in force
// for a (namespace, model); of several the highest serial counts. Pure functions, any thread.
#pragma once

#include <cstdint>
#include <string>

#include "proto/identity.h"
#include "proto/model.h"
#include "proto/profile.h"
#include "storage/block_file.h"

namespace kv {

struct ModelRecord {
  std::string ns;  ///< namespace
  ModelSpec model;
  Id profile;           ///< the profile in force
  uint64_t serial = 0;  ///< the highest one counts
  bool operator==(const ModelRecord&) const = default;
};

/// Returns: invalid_argument if a field is over its limit.
Result<EncodedFile> encode_profile_file(const Profile& profile);
Result<EncodedFile> encode_model_record(const ModelRecord& record);
/// Decode a record file; any bytes are safe input. Return: corruption with the reason; unsupported
/// (another version).
Result<Profile> decode_profile_file(const Bytes& file);
Result<ModelRecord> decode_model_record(const Bytes& file);

}  // namespace kv
