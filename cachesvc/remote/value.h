// Values of the shared tier: an object's file, plain or sealed, cut into parts, and back, every
// byte verified. REMOTE.md, "Values". Any bytes are safe input. Pure but for the salt of a seal,
// any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "cachesvc/remote/names.h"
#include "proto/bytes.h"
#include "proto/profile.h"
#include "storage/block_file.h"
#include "storage/seal_key.h"

namespace kv {

/// Bytes of a value that say how long it is: an envelope, or a prefix and what follows it.
inline constexpr size_t kRemoteFrontBytes = 72;

struct RemoteFront {
  uint64_t file_bytes = 0;
  RemoteSum sum{};
  uint64_t parts() const { return (file_bytes + kRemotePartBytes - 1) / kRemotePartBytes; }
  bool operator==(const RemoteFront&) const = default;
};
/// `front`: a value's first kRemoteFrontBytes. `key`: what values are sealed with, or null.
/// Returns: corruption; unsupported (of another version, or sealed otherwise than with `key`).
Result<RemoteFront> decode_remote_front(std::span<const uint8_t> front, const SealKey* key);

struct RemoteValue {
  RemoteFront front;
  std::vector<Bytes> pieces;  ///< the file's bytes in order

  /// Part `index` of front.parts(), its bytes shared.
  std::vector<Bytes> part(uint64_t index) const;
};
/// Returns: invalid_argument (over a limit), io_error (libcrypto, randomness).
Result<RemoteValue> make_remote_value(const FileImage& image, const SealKey* key);

/// The object in `bytes`, which are opened in place. Returns: corruption; unsupported, as above;
/// io_error (libcrypto).
Result<FileImage> open_remote_value(std::shared_ptr<uint8_t[]> bytes, uint64_t size,
                                    const ObjectName& name, const SealKey* key);

/// A profile as a value, sealed under `name`. Returns: invalid_argument; io_error.
Result<std::vector<Bytes>> make_remote_profile(const Profile& profile, std::string_view name,
                                               const SealKey* key);
/// The profile in `bytes`, which are opened in place. Returns: as open_remote_value.
Result<Profile> open_remote_profile(std::shared_ptr<uint8_t[]> bytes, uint64_t size,
                                    std::string_view name, const SealKey* key);

}  // namespace kv
