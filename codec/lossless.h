// Lossless packing of payload bytes for the SSD (zstd level 1), kept only where it pays.
//
// Pure functions, any thread. zstd.h is included by lossless.cc alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/status.h"

namespace kv {

/// A packed form must be at least this much smaller to be kept, in percent of the input.
inline constexpr uint64_t kMinSavingPercent = 3;

/// One zstd frame, or nullopt if it would save less than kMinSavingPercent.
std::optional<std::vector<uint8_t>> pack(std::span<const uint8_t> bytes);

/// The inverse. Any bytes are safe input: the size in the frame is compared with `expected_bytes`
/// before anything is allocated, and exactly that many bytes must come out.
/// Returns: corruption.
Result<std::vector<uint8_t>> unpack(std::span<const uint8_t> packed, uint64_t expected_bytes);

}  // namespace kv
