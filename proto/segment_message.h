// Messages of shared pools: segments that a client maps, and fetches that name places in them.
//
// Each is one frame's body, encoded as in proto/message.h. Pure functions, any thread. PROTOCOL.md,
// "Pools".
#pragma once

#include <vector>

#include "memory/segment.h"
#include "proto/message.h"

namespace kv {

/// Bit of hello's features: the client takes descriptors and maps segments.
inline constexpr uint32_t kFeatureSegments = 1u << 0;
inline constexpr uint32_t kMaxEndedLeases = 1024;  ///< limit of one frame
/// Object headers of a connection that both sides keep: of each new one number n, those up to
/// n - kKnownHeaders go.
inline constexpr uint64_t kKnownHeaders = 1024;

/// Service to client, with one descriptor beside its first byte; answers nothing.
struct SegmentAnnounced {
  uint32_t segment = 0;
  uint64_t bytes = 0;
  uint64_t page_bytes = 0;  ///< page size in force
  bool operator==(const SegmentAnnounced&) const = default;
};
/// Service to client: to be unmapped as soon as no lease needs it; nothing new comes there.
struct SegmentRevoked {
  uint32_t segment = 0;
  bool operator==(const SegmentRevoked&) const = default;
};
/// Client to service, not answered: a revoked segment is no longer mapped.
struct SegmentUnmapped {
  uint32_t segment = 0;
  bool operator==(const SegmentUnmapped&) const = default;
};
/// Client to service, not answered.
struct LeasesEnded {
  std::vector<uint64_t> leases;
  bool operator==(const LeasesEnded&) const = default;
};

/// Place of an object of a mapped fetch.
enum class ObjectPlace : uint8_t {
  streamed = 0,  ///< follows in a fetch_object frame
  mapped = 1,    ///< lies in a segment; its header is here, and is known from now on
  known = 2,     ///< lies in a segment; its header's number was given before
};
struct MappedObject {
  ObjectPlace place = ObjectPlace::streamed;
  uint32_t end_token = 0;
  uint64_t number = 0;  ///< the header's: mapped, known
  // Mapped objects only:
  uint32_t segment = 0;
  uint64_t offset = 0;  ///< the payload's
  uint64_t generation = 0;
  std::vector<uint8_t> header;  ///< encoded by encode_header()
  bool operator==(const MappedObject&) const = default;
};
/// Answers a fetch_mapped; a fetch_object for each streamed object follows, in their order.
struct MappedReply {
  uint32_t tokens = 0, common = 0;
  bool pending = false;
  Tier tier = Tier::none;
  HitForm form = HitForm::none;
  std::string reason;
  uint64_t lease = 0;           ///< 0: nothing is mapped
  uint32_t lease_ms = 0;        ///< time without a frame of the client that ends it
  uint64_t streamed_bytes = 0;  ///< lengths of the fetch_object frames together
  std::vector<MappedObject> objects;
  bool operator==(const MappedReply&) const = default;
};

void encode(const SegmentAnnounced& m, ByteWriter& out);
void encode(const SegmentRevoked& m, ByteWriter& out);
void encode(const SegmentUnmapped& m, ByteWriter& out);
void encode(const LeasesEnded& m, ByteWriter& out);
void encode(const MappedReply& m, ByteWriter& out);
// The same bytes from pieces, for replies of hundreds of objects that are encoded one by one.
std::vector<uint8_t> encoded(const MappedObject& object);
/// Changes the number of an encoded object that is mapped or known.
void set_number(std::vector<uint8_t>& encoded_object, uint64_t number);
/// `m` has no objects: they are the pieces.
OutFrame mapped_frame(uint64_t request, const MappedReply& m, std::vector<Bytes> objects);
void decode(ByteReader& in, SegmentAnnounced& m);
void decode(ByteReader& in, SegmentRevoked& m);
void decode(ByteReader& in, SegmentUnmapped& m);
void decode(ByteReader& in, LeasesEnded& m);
void decode(ByteReader& in, MappedReply& m);

}  // namespace kv
