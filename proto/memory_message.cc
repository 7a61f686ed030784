// Fields of the messages in PROTOCOL.md, "A client's own memory".
#include "proto/memory_message.h"

#include "proto/fields.h"
#include "proto/into.h"
#include "proto/put_fields.h"

namespace kv {
namespace {

template <typename Io>
void fields(Io& io, Of<Io, MemoryOffer>& m) {
  io.number("memory", m.memory, 1);
}

template <typename Io>
void fields(Io& io, Of<Io, MemoryReply>& m) {
  io.number("bytes", m.bytes);
}

template <typename Io>
void fields(Io& io, Of<Io, MemoryEnded>& m) {
  io.number("memory", m.memory, 1);
}

// Runs of at most kMaxMemoryPieces pieces, each of an object's bytes at most, which end below 2^62.
template <typename Io>
void piece_fields(Io& io, Of<Io, std::vector<MemoryRun>>& runs) {
  uint64_t pieces = 0;
  io.list("runs", runs, kMaxMemoryPieces, [&](Io& item, auto& run) {
    item.number("offset", run.offset, 0, kMaxMemoryOffset);
    item.number("bytes", run.bytes, 1, kMaxObjectBytes);
    item.number("stride", run.stride, 0, kMaxMemoryStride);
    item.number("count", run.count, 1, kMaxMemoryPieces);
    pieces += run.count;
    item.check("count", pieces <= kMaxMemoryPieces, pieces, "expected at most 65536 pieces");
  });
}

// Runs of a put: of one object's bytes together.
template <typename Io>
void run_fields(Io& io, Of<Io, std::vector<MemoryRun>>& runs) {
  piece_fields(io, runs);
  if (io.failed()) return;
  const uint64_t bytes = bytes_of(runs);
  io.check("runs", bytes <= kMaxObjectBytes, bytes, "expected at most 1 GiB of payload");
}

template <typename Io>
void into_fields(Io& io, Of<Io, FetchInto>& m) {
  io.number("memory", m.memory, 1);
  piece_fields(io, m.runs);
}

}  // namespace

KV_MESSAGE(MemoryOffer)
KV_MESSAGE(MemoryReply)
KV_MESSAGE(MemoryEnded)

uint64_t bytes_of(const std::vector<MemoryRun>& runs) {
  uint64_t bytes = 0;
  for (const MemoryRun& run : runs) bytes += run.bytes * run.count;
  return bytes;
}

void encode(const FetchInto& m, ByteWriter& out) {
  FieldWriter io(out);
  into_fields(io, m);
  encode(m.call, out);
}
void decode(ByteReader& in, FetchInto& m) {
  FieldReader io(in);
  into_fields(io, m);
  if (!in.failed()) decode(in, m.call);
}

OutFrame fetch_placed_frame(uint64_t request, const FetchedObject& m) {
  ByteWriter out = start_frame();
  out.u32(m.end_token);
  ByteWriter header;
  encode_header(*m.object, header);
  out.blob(header.span());
  return finish_frame(FrameType::fetch_placed, request, std::move(out));
}

Result<FetchedObject> decode_fetch_placed(std::span<const uint8_t> body) {
  ByteReader in(body);
  FetchedObject m;
  m.end_token = in.u32();
  if (in.failed()) in.fail("end_token: " + in.why());
  KV_ASSIGN_OR_RETURN(Object object, read_header(in, FrameType::fetch_placed));
  if (!in.done()) return bad_body(FrameType::fetch_placed, in);
  m.object = std::make_shared<const Object>(std::move(object));
  return m;
}

OutFrame put_from_frame(uint64_t request, uint32_t timeout_ms, const PutFrom& m) {
  ByteWriter out = start_frame();
  FieldWriter io(out);
  put_fields(io, timeout_ms, m.put);
  io.number("memory", m.memory, 1);
  run_fields(io, m.runs);
  ByteWriter header;
  encode_header(m.put.object, header);
  out.blob(header.span());
  return finish_frame(FrameType::put_from, request, std::move(out));
}

Result<PutFrom> decode_put_from(std::span<const uint8_t> body, uint32_t& timeout_ms) {
  ByteReader in(body);
  PutFrom m;
  FieldReader io(in);
  put_fields(io, timeout_ms, m.put);
  io.number("memory", m.memory, 1);
  run_fields(io, m.runs);
  if (in.failed()) return bad_body(FrameType::put_from, in);
  KV_ASSIGN_OR_RETURN(m.put.object, read_header(in, FrameType::put_from));
  if (!in.done()) return bad_body(FrameType::put_from, in);
  const uint64_t expected = payload_bytes_of(m.put.object), given = bytes_of(m.runs);
  if (expected == given) return m;
  return corruption("put_from: runs of " + std::to_string(given) + " bytes, the object has " +
                    std::to_string(expected));
}

}  // namespace kv
