// Frames as they leave, and the two messages with a payload: put and fetch_object. Their body is
// fixed fields, the object's header, zeros up to a multiple of kPayloadAlignment, the payload.
#include <algorithm>

#include "proto/message.h"

namespace kv {
namespace {

// The object's header, padding, and its planes' and states' bytes as pieces. `out` holds a started
// frame: the alignment counts from the body's first byte.
std::vector<Bytes> put_object(const Object& object, ByteWriter& out) {
  ByteWriter header;
  encode_header(object, header);
  out.blob(header.span());
  while ((out.size() - kFrameHeaderBytes) % kPayloadAlignment != 0) out.u8(0);
  std::vector<Bytes> pieces;
  for (const auto& p : object.planes) {
    if (!p.bytes.empty()) pieces.push_back(p.bytes);
  }
  for (const auto& s : object.states) {
    if (!s.bytes.empty()) pieces.push_back(s.bytes);
  }
  return pieces;
}

// `in` stands at the object's header and reads `body` from its first byte.
Result<Object> get_object(ByteReader& in, const Bytes& body, FrameType type) {
  ByteReader header(in.blob(kMaxObjectHeaderBytes));
  if (in.failed()) return bad_body(type);
  KV_ASSIGN_OR_RETURN(Object object, decode_header(header));
  if (!header.done()) return bad_body(type);
  size_t padding = (kPayloadAlignment - in.at() % kPayloadAlignment) % kPayloadAlignment;
  auto zeros = in.raw(padding);
  if (in.failed() || std::any_of(zeros.begin(), zeros.end(), [](uint8_t b) { return b != 0; })) {
    return bad_body(type);
  }
  KV_RETURN_IF_ERROR(attach_payload(object, body.slice(in.at(), in.left())));
  return object;
}

}  // namespace

ByteWriter start_frame() {
  ByteWriter out;
  out.bytes().resize(kFrameHeaderBytes);
  return out;
}

OutFrame finish_frame(FrameType type, uint64_t request, ByteWriter body,
                      std::vector<Bytes> pieces) {
  OutFrame frame{nullptr, body.take(), std::move(pieces)};
  FrameHeader header;
  header.type = type;
  header.request = request;
  header.length = frame.bytes() - kFrameHeaderBytes;
  auto bytes = encode_frame_header(header);
  std::copy(bytes.begin(), bytes.end(), frame.head.begin());
  return frame;
}

OutFrame error_frame(uint64_t request, const Status& status) {
  return reply_frame(FrameType::error, request, ErrorReply{status.code(), status.message()});
}

OutFrame put_frame(uint64_t request, uint32_t timeout_ms, const PutRequest& m) {
  ByteWriter out = start_frame();
  out.u32(timeout_ms);
  out.u64(m.reservation);
  out.u32(static_cast<uint32_t>(m.copies.size()));
  for (const auto& c : m.copies) {
    out.u8(static_cast<uint8_t>(c.source.kind));
    out.raw(c.source.id.bytes);
    out.u16(c.source.group);
    out.u32(c.source.first_row);
    out.u32(c.source.end_row);
    out.u32(c.first_row);
    out.u32(c.end_row);
  }
  auto pieces = put_object(m.object, out);
  return finish_frame(FrameType::put, request, std::move(out), std::move(pieces));
}

Result<PutRequest> decode_put(const Bytes& body, uint32_t& timeout_ms) {
  ByteReader in(body.span());
  PutRequest m;
  timeout_ms = in.u32();
  m.reservation = in.u64();
  uint32_t copies = in.u32();
  if (copies > kMaxCopies) in.fail();
  for (uint32_t i = 0; i < copies && !in.failed(); ++i) {
    CopyRows c;
    uint8_t kind = in.u8();
    if (kind < 1 || kind > static_cast<uint8_t>(ObjectKind::snapshot)) in.fail();
    c.source.kind = static_cast<ObjectKind>(kind);
    auto id = in.raw(c.source.id.bytes.size());
    if (!in.failed()) std::copy(id.begin(), id.end(), c.source.id.bytes.begin());
    c.source.group = in.u16();
    c.source.first_row = in.u32();
    c.source.end_row = in.u32();
    c.first_row = in.u32();
    c.end_row = in.u32();
    m.copies.push_back(c);
  }
  KV_ASSIGN_OR_RETURN(m.object, get_object(in, body, FrameType::put));
  return m;
}

OutFrame fetch_object_frame(uint64_t request, const FetchedObject& m) {
  ByteWriter out = start_frame();
  out.u32(m.end_token);
  auto pieces = put_object(*m.object, out);
  OutFrame frame =
      finish_frame(FrameType::fetch_object, request, std::move(out), std::move(pieces));
  frame.hold = m.object;
  return frame;
}

Result<FetchedObject> decode_fetch_object(const Bytes& body) {
  ByteReader in(body.span());
  FetchedObject m;
  m.end_token = in.u32();
  KV_ASSIGN_OR_RETURN(Object object, get_object(in, body, FrameType::fetch_object));
  m.object = std::make_shared<const Object>(std::move(object));
  return m;
}

}  // namespace kv
