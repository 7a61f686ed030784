// Messages of a client's own memory: the client hands its memfd over once; puts then name the
// places of their rows in it, and fetches the places that their payload shall fill.
//
// Each is one frame's body, encoded as in proto/message.h. Pure functions, any thread. PROTOCOL.md,
// "A client's own memory".
#pragma once

#include <vector>

#include "proto/message.h"

namespace kv {

/// Bit of hello's features: the client may offer memory of its own.
inline constexpr uint32_t kFeatureMemory = 1u << 1;
inline constexpr uint32_t kMaxMemories = 4;          ///< of a connection, at a time
inline constexpr uint64_t kMaxMemoryPieces = 65536;  ///< of one request, each a system call
inline constexpr uint64_t kMaxMemoryOffset = 1ull << 61;
inline constexpr uint64_t kMaxMemoryStride = kMaxMemoryOffset / kMaxMemoryPieces;

/// Client to service, with one descriptor beside its first byte.
struct MemoryOffer {
  uint32_t memory = 0;  ///< the client's number for it
  bool operator==(const MemoryOffer&) const = default;
};
struct MemoryReply {
  uint64_t bytes = 0;  ///< its size, as the service sees it
  bool operator==(const MemoryReply&) const = default;
};
/// Client to service, not answered: the service closes its descriptor.
struct MemoryEnded {
  uint32_t memory = 0;
  bool operator==(const MemoryEnded&) const = default;
};

/// `count` pieces of `bytes` bytes each: the first at `offset`, the others `stride` bytes apart.
struct MemoryRun {
  uint64_t offset = 0, bytes = 0, stride = 0;
  uint32_t count = 1;
  bool operator==(const MemoryRun&) const = default;
};
/// A put whose payload lies in the client's memory: all pieces of all runs, one after another.
struct PutFrom {
  PutRequest put;  ///< its planes and states have sizes and no bytes
  uint32_t memory = 0;
  std::vector<MemoryRun> runs;
};

/// A fetch whose payload the service writes into the client's memory: into all pieces of all runs,
/// one after another. Answered by fetch_header, a fetch_placed for each object, fetch_done.
struct FetchInto {
  uint32_t memory = 0;
  std::vector<MemoryRun> runs;
  FetchCall call;
};

void encode(const MemoryOffer& m, ByteWriter& out);
void encode(const MemoryReply& m, ByteWriter& out);
void encode(const MemoryEnded& m, ByteWriter& out);
void encode(const FetchInto& m, ByteWriter& out);
void decode(ByteReader& in, MemoryOffer& m);
void decode(ByteReader& in, MemoryReply& m);
void decode(ByteReader& in, MemoryEnded& m);
void decode(ByteReader& in, FetchInto& m);

/// Bytes of the runs' pieces together.
uint64_t bytes_of(const std::vector<MemoryRun>& runs);
OutFrame put_from_frame(uint64_t request, uint32_t timeout_ms, const PutFrom& m);
/// The runs have as many bytes as the object's planes and states. Returns: corruption.
Result<PutFrom> decode_put_from(std::span<const uint8_t> body, uint32_t& timeout_ms);
/// An object whose payload lies in the client's memory: its header alone.
OutFrame fetch_placed_frame(uint64_t request, const FetchedObject& m);
/// Planes have no bytes, states sizes and no bytes. Returns: corruption.
Result<FetchedObject> decode_fetch_placed(std::span<const uint8_t> body);

}  // namespace kv
