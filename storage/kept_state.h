// KeptState: an owner's state for the next start that the files don't tell. FORMAT.md, "Catalog". A
// plain value; decoding checks all of it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "proto/status.h"

namespace kv {

/// Bytes by the hour in which they were written, in whole hours since 1970 (UTC).
using HourBytes = std::map<int64_t, uint64_t>;

inline constexpr size_t kKeptHours = 25;               ///< a day, and the hour that has begun
inline constexpr uint64_t kMaxHourBytes = 1ull << 56;  ///< sums of a day never overflow

struct KeptState {
  HourBytes written;      ///< device bytes; at most kKeptHours, each at most kMaxHourBytes
  uint16_t scrubbed = 0;  ///< the first 16 bits of the id of the file that was verified last

  bool operator==(const KeptState&) const = default;
};

std::vector<uint8_t> encode_kept_state(const KeptState& state);
/// Returns: corruption.
Result<KeptState> decode_kept_state(std::span<const uint8_t> bytes);

}  // namespace kv
