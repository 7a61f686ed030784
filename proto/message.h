// Messages: the bodies of frames, one for every request and reply of Client (proto/client.h).
//
// encode appends a body's fields; decode takes any bytes safely: every count is capped by
// proto/limits.h or by the constants here before anything is allocated. A request's body begins
// with a u32 timeout in milliseconds (request_frame writes it, decode_request reads it). Pure
// functions, any thread. PROTOCOL.md, "Messages".
#pragma once

#include <array>
#include <string>
#include <vector>

#include "proto/client.h"
#include "proto/frame.h"

namespace kv {

inline constexpr uint32_t kMaxMessageBytes = 4096;  ///< text of an error or a reason
inline constexpr uint32_t kMaxProgramBytes = 128;   ///< name and version of a peer
inline constexpr uint32_t kMaxTokenBytes = 256;     ///< token of a namespace, in hello
inline constexpr uint32_t kMaxNeeds = 1u << 20;     ///< limit of one reply
inline constexpr uint32_t kMaxNames = 1u << 18;     ///< limit of one list of object names
inline constexpr uint32_t kMaxCopies = 4096;        ///< limit of one put
inline constexpr uint32_t kMaxStatValues = 4096;
inline constexpr uint32_t kMaxStatNameBytes = 256;
inline constexpr uint32_t kMaxFetchObjects = 1u << 20;
inline constexpr size_t kPayloadAlignment = 64;  ///< alignment of a payload within its body

/// Random, new at each start of the service: whoever sees another one knows that all handles,
/// numbers and mappings that it got before are of a service that is gone.
using BootToken = std::array<uint8_t, 16>;

/// The first frame of a connection.
struct HelloRequest {
  uint16_t min_version = kProtocolVersion, max_version = kProtocolVersion;
  uint32_t features = 0;  ///< bits of abilities beyond this version (segment_message.h)
  std::string ns;         ///< namespace of every later call
  std::string program;    ///< name for logs
  std::string token;      ///< the namespace's; empty: none. Never in a log
  bool operator==(const HelloRequest&) const = default;
};
struct HelloReply {
  uint16_t version = kProtocolVersion;
  uint32_t features = 0;  ///< the client's features that the service has too
  BootToken boot{};
  uint32_t max_in_flight = 0;  ///< requests of this connection without their last reply frame
  uint64_t max_put_bytes = 0;  ///< longest body of a put
  std::string ns;
  std::string program;
  bool operator==(const HelloReply&) const = default;
};
struct ErrorReply {
  StatusCode code = StatusCode::internal;
  std::string message;
  bool operator==(const ErrorReply&) const = default;
};
struct EraseRequest {
  uint32_t model = 0;
  Query query;
};
struct CommitRequest {
  uint64_t reservation = 0;
  Durability wait_for = Durability::accepted;
};
struct AbortRequest {
  uint64_t reservation = 0;
};
struct RenewRequest {
  uint64_t hold = 0;
  std::chrono::milliseconds time{0};
};
struct RenewReply {
  std::chrono::milliseconds time{0};
};
struct ReleaseRequest {
  uint64_t hold = 0;
};
/// Client to service, not answered itself: request `request` of this connection is no longer
/// wanted.
struct Cancel {
  uint64_t request = 0;
};
struct FetchCall {
  FetchRequest request;
  uint64_t max_reply_bytes = UINT64_MAX;  ///< all object frames; more: resource_exhausted
};
/// Answers a fetch; `objects` fetch_object frames and a fetch_done follow.
struct FetchHeader {
  uint32_t tokens = 0, common = 0;
  bool pending = false;
  Tier tier = Tier::none;
  HitForm form = HitForm::none;
  std::string reason;
  uint32_t objects = 0;
  uint64_t object_bytes = 0;  ///< lengths of the fetch_object frames together
  bool operator==(const FetchHeader&) const = default;
};
struct FetchDone {
  uint32_t objects = 0;
};
struct EraseCount {
  uint64_t objects = 0;
};
struct Empty {};  ///< put_ok, abort_ok, release_ok; stats has nothing but its timeout

void encode(const HelloRequest& m, ByteWriter& out);
void encode(const HelloReply& m, ByteWriter& out);
void encode(const ErrorReply& m, ByteWriter& out);
void encode(const OpenRequest& m, ByteWriter& out);
void encode(const OpenReply& m, ByteWriter& out);
void encode(const QueryRequest& m, ByteWriter& out);
void encode(const EraseRequest& m, ByteWriter& out);
void encode(const PrefetchRequest& m, ByteWriter& out);
void encode(const DemoteRequest& m, ByteWriter& out);
void encode(const DemoteReply& m, ByteWriter& out);
void encode(const RetainRequest& m, ByteWriter& out);
void encode(const RetainReply& m, ByteWriter& out);
void encode(const ExpireRequest& m, ByteWriter& out);
void encode(const ExpireReply& m, ByteWriter& out);
void encode(const HoldRequest& m, ByteWriter& out);
void encode(const HoldReply& m, ByteWriter& out);
void encode(const RenewRequest& m, ByteWriter& out);
void encode(const RenewReply& m, ByteWriter& out);
void encode(const ReleaseRequest& m, ByteWriter& out);
void encode(const Cancel& m, ByteWriter& out);
void encode(const LookupReply& m, ByteWriter& out);
void encode(const ReserveRequest& m, ByteWriter& out);
void encode(const ReserveReply& m, ByteWriter& out);
void encode(const CommitRequest& m, ByteWriter& out);
void encode(const CommitReply& m, ByteWriter& out);
void encode(const AbortRequest& m, ByteWriter& out);
void encode(const FetchCall& m, ByteWriter& out);
void encode(const FetchHeader& m, ByteWriter& out);
void encode(const FetchDone& m, ByteWriter& out);
void encode(const EraseCount& m, ByteWriter& out);
void encode(const StatsReply& m, ByteWriter& out);
inline void encode(const Empty&, ByteWriter&) {}

// Decoders fill `m` or fail `in`, whose why() names the field. Fields that are not sizes (dims,
// rows) are checked by their users: validate() of model, profile and object.
void decode(ByteReader& in, HelloRequest& m);
void decode(ByteReader& in, HelloReply& m);
void decode(ByteReader& in, ErrorReply& m);
void decode(ByteReader& in, OpenRequest& m);
void decode(ByteReader& in, OpenReply& m);
void decode(ByteReader& in, QueryRequest& m);
void decode(ByteReader& in, EraseRequest& m);
void decode(ByteReader& in, PrefetchRequest& m);
void decode(ByteReader& in, DemoteRequest& m);
void decode(ByteReader& in, DemoteReply& m);
void decode(ByteReader& in, RetainRequest& m);
void decode(ByteReader& in, RetainReply& m);
void decode(ByteReader& in, ExpireRequest& m);
void decode(ByteReader& in, ExpireReply& m);
void decode(ByteReader& in, HoldRequest& m);
void decode(ByteReader& in, HoldReply& m);
void decode(ByteReader& in, RenewRequest& m);
void decode(ByteReader& in, RenewReply& m);
void decode(ByteReader& in, ReleaseRequest& m);
void decode(ByteReader& in, Cancel& m);
void decode(ByteReader& in, LookupReply& m);
void decode(ByteReader& in, ReserveRequest& m);
void decode(ByteReader& in, ReserveReply& m);
void decode(ByteReader& in, CommitRequest& m);
void decode(ByteReader& in, CommitReply& m);
void decode(ByteReader& in, AbortRequest& m);
void decode(ByteReader& in, FetchCall& m);
void decode(ByteReader& in, FetchHeader& m);
void decode(ByteReader& in, FetchDone& m);
void decode(ByteReader& in, EraseCount& m);
void decode(ByteReader& in, StatsReply& m);
inline void decode(ByteReader&, Empty&) {}

/// Error of an unreadable body: the field, the given value, and the limit.
Status bad_body(FrameType type, const ByteReader& in);

/// Returns: corruption.
Status check_type(const Frame& frame, FrameType expected);
/// The body of a reply, or of a hello. Returns: corruption.
template <typename T>
Result<T> decode_reply(FrameType type, std::span<const uint8_t> body) {
  ByteReader in(body);
  T m;
  decode(in, m);
  if (!in.done()) return bad_body(type, in);
  return m;
}
/// The body of a request. Returns: corruption.
template <typename T>
Result<T> decode_request(FrameType type, std::span<const uint8_t> body, uint32_t& timeout_ms) {
  ByteReader in(body);
  timeout_ms = in.u32();
  T m;
  if (in.failed())
    in.fail("timeout: " + in.why());
  else
    decode(in, m);
  if (!in.done()) return bad_body(type, in);
  return m;
}

/// Room for the frame header, and its completion once the body is there.
ByteWriter start_frame();
OutFrame finish_frame(FrameType type, uint64_t request, ByteWriter body,
                      std::vector<Bytes> pieces = {});

template <typename T>
OutFrame reply_frame(FrameType type, uint64_t request, const T& m) {
  ByteWriter out = start_frame();
  encode(m, out);
  return finish_frame(type, request, std::move(out));
}
template <typename T>
OutFrame request_frame(FrameType type, uint64_t request, uint32_t timeout_ms, const T& m) {
  ByteWriter out = start_frame();
  out.u32(timeout_ms);
  encode(m, out);
  return finish_frame(type, request, std::move(out));
}
/// The status is not ok; its message is cut at kMaxMessageBytes.
OutFrame error_frame(uint64_t request, const Status& status);

// Frames with a payload: planes and states are sent from where they lie and, received, point into
// the one body (proto/plane.h, attach_payload).
OutFrame put_frame(uint64_t request, uint32_t timeout_ms, const PutRequest& m);
/// Planes of the result are slices of `body`. Returns: corruption.
Result<PutRequest> decode_put(const Bytes& body, uint32_t& timeout_ms);
OutFrame fetch_object_frame(uint64_t request, const FetchedObject& m);
/// Planes of the result are slices of `body`. Returns: corruption.
Result<FetchedObject> decode_fetch_object(const Bytes& body);

}  // namespace kv
