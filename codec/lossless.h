// Lossless packing of payload bytes for the SSD (zstd level 1), kept only where it pays.
//
// Two forms. *zstd*: one frame over the bytes as they are, for codes. *split*: bytes of equal
// significance of floating-point values side by side, each such stretch a frame of its own, for
// rows and states that are stored exactly (FORMAT.md, "Packing"). Exponents compress and mantissas
// don't: apart they take 8 to 13 % less than one frame over both, and unpack about twice as fast.
// Any thread: each keeps zstd's working memory (up to 1 MiB) from its first call to its end.
// zstd.h is included by lossless.cc alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "proto/status.h"

namespace kv {

/// A packed form must be at least this much smaller to be kept, in percent of the input.
inline constexpr uint64_t kMinSavingPercent = 3;
/// Values of a chunk of the split form.
inline constexpr size_t kSplitValues = 65'536;

/// One zstd frame, or nullopt if it would save less than kMinSavingPercent.
std::optional<std::vector<uint8_t>> pack(std::span<const uint8_t> bytes);

/// The inverse, into memory of exactly the unpacked size. Any bytes are safe input.
/// Returns: corruption; busy without memory for it.
Status unpack(std::span<const uint8_t> packed, std::span<uint8_t> out);

/// The split form of values of `value_bytes` (2 or 4) bytes, or nullopt if it would save less than
/// kMinSavingPercent or `bytes` are no whole values.
std::optional<std::vector<uint8_t>> pack_split(std::span<const uint8_t> bytes,
                                               uint32_t value_bytes);

/// The inverse, as unpack. Takes up to 4 * kSplitValues bytes of memory meanwhile.
Status unpack_split(std::span<const uint8_t> packed, std::span<uint8_t> out);

}  // namespace kv
