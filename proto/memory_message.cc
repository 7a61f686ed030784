// Fields of the messages in PROTOCOL.md, "A client's own memory".
#include "proto/memory_message.h"

#include "proto/fields.h"
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

// Runs of at most kMaxMemoryPieces pieces and of one object's bytes together, which end below 2^62.
template <typename Io>
void run_fields(Io& io, Of<Io, std::vector<MemoryRun>>& runs) {
  constexpr uint64_t kMaxOffset = 1ull << 61;
  uint64_t pieces = 0, bytes = 0;
  io.list("runs", runs, kMaxMemoryPieces, [&](Io& item, auto& run) {
    item.number("offset", run.offset, 0, kMaxOffset);
    item.number("bytes", run.bytes, 1, kMaxObjectBytes);
    item.number("stride", run.stride, 0, kMaxOffset / kMaxMemoryPieces);
    item.number("count", run.count, 1, kMaxMemoryPieces);
    pieces += run.count;
    item.check("count", pieces <= kMaxMemoryPieces, pieces, "expected at most 65536 pieces");
    if (!item.failed()) bytes += run.bytes * run.count;
    item.check("bytes", bytes <= kMaxObjectBytes, bytes, "expected at most 1 GiB of payload");
  });
}

uint64_t bytes_of(const Object& object) {
  uint64_t bytes = 0;
  for (const Plane& p : object.planes) bytes += plane_bytes(p);
  for (const StateBlob& s : object.states) bytes += s.bytes.size();
  return bytes;
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
  const uint64_t expected = bytes_of(m.put.object), given = bytes_of(m.runs);
  if (expected == given) return m;
  return corruption("put_from: runs of " + std::to_string(given) + " bytes, the object has " +
                    std::to_string(expected));
}

}  // namespace kv
