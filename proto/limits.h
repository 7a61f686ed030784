// Fixed limits of formats and messages; readers refuse more before they allocate. Limits that a
// user may want to change live in cachesvc/daemon/config.h instead.
#pragma once

#include <cstdint>

namespace kv {

inline constexpr uint32_t kMaxNamespaceBytes = 64;
inline constexpr uint32_t kMaxModelNameBytes = 256;
inline constexpr uint32_t kMaxLabelBytes = 128;
inline constexpr uint32_t kMaxLayers = 1024;
inline constexpr uint32_t kMaxPartsPerLayer = 8;
inline constexpr uint32_t kMaxHeads = 1024;
inline constexpr uint32_t kMaxDim = 1u << 16;
inline constexpr uint32_t kMaxBlockTokens = 4096;
inline constexpr uint32_t kMaxTokens = 1u << 22;  ///< limit of one stored sequence
inline constexpr uint32_t kMaxExtras = 4096;      ///< limit of one sequence
inline constexpr uint32_t kMaxExtraBytes = 1024;  ///< limit of one extra (a digest, not the media)
inline constexpr uint32_t kMaxPlanesPerObject = kMaxLayers * kMaxPartsPerLayer * 2;
inline constexpr uint32_t kMaxRunsPerPlane = 64;
inline constexpr uint64_t kMaxStateBytes = 1ull << 30;   ///< limit of one part in a snapshot
inline constexpr uint64_t kMaxObjectBytes = 1ull << 30;  ///< payload of one object
inline constexpr uint32_t kMaxObjectHeaderBytes = 16u << 20;
/// Limit of an encoded profile, and of the rest of a record file. Means and gains of the largest
/// known models take 1 MiB.
inline constexpr uint32_t kMaxProfileBytes = 16u << 20;
inline constexpr uint32_t kMaxNamedEnds = 64;           ///< of one reserve
inline constexpr uint32_t kMaxModelsPerNamespace = 64;  ///< open, or with something stored

}  // namespace kv
