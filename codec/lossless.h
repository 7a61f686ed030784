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

/// The inverse, into memory of exactly the unpacked size. Any bytes are safe input.
/// Returns: corruption.
Status unpack(std::span<const uint8_t> packed, std::span<uint8_t> out);

}  // namespace kv
