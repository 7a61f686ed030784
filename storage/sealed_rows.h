// SealedRows: the part of a catalog row that tells of a prompt, as one sealed value. FORMAT.md,
// "Catalog".
//
// A value names the salt of the run that wrote it; within a run a counter is the nonce. Opening
// keeps the last run's subkey, as rows of one run lie together. Not thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "proto/bytes.h"
#include "proto/plane.h"
#include "storage/seal_key.h"

namespace kv {

class SealedRows {
 public:
  /// `key`: as long as this object.
  explicit SealedRows(const SealKey& key) : key_(key) {}

  /// Parent, profile, namespace, fingerprint, first token, tokens and extras of `header`, bound to
  /// the row's `file` name. Returns: io_error.
  Result<std::vector<uint8_t>> seal(const std::string& file, const Object& header);
  /// The same of any bytes: `what` tells them from the row's fields.
  Result<std::vector<uint8_t>> seal(const std::string& file, std::string_view what,
                                    std::span<const uint8_t> fields);
  Result<std::vector<uint8_t>> open(const std::string& file, std::string_view what,
                                    std::span<const uint8_t> sealed);
  /// Fills these fields. Any bytes are safe input. Returns: corruption (also if another key sealed
  /// it); io_error.
  Status open(const std::string& file, std::span<const uint8_t> sealed, Object& header);

 private:
  struct Run {
    SealSalt salt{};
    Gcm gcm;
    bool ready = false;
  };
  const SealKey& key_;
  Run sealing_, opening_;
  uint64_t next_ = 0;  // nonce of the next row
};

}  // namespace kv
