// Profile files: a profile made for one model, kept outside a store: what calibration found
// (engine/calibration.h) or what `cachectl tune` chose.
//
// Layout: "KCL1", fingerprint of the model (32 bytes), id of the profile that it was made from
// (32), SHA-256 of the rest (32), the profile's bytes (FORMAT.md, "Profile"). Blocking file I/O;
// any thread.
#pragma once

#include <string>

#include "proto/checksum.h"
#include "proto/model.h"
#include "proto/profile.h"
#include "proto/status.h"

namespace kv {

struct ProfileFile {
  Id fingerprint;  ///< of the model that it was made for
  Id base;         ///< of the profile that it was made from
  Profile profile;
};
/// Returns: not_found (no file), corruption.
Result<ProfileFile> read_profile_file(const std::string& path);
/// `base`, if given: only a profile that was made from that one. The profile fits the model.
/// Returns: not_found (no file), invalid_argument (made for another model or from another profile),
/// corruption.
Result<Profile> read_profile_file(const std::string& path, const ModelSpec& model, const Id* base);
/// Under a temporary name, then renamed. Returns: io_error.
Status write_profile_file(const std::string& path, const ModelSpec& model, const Id& base,
                          const Profile& profile);

}  // namespace kv
