// Frames as they leave, and the two messages with a payload: put and fetch_object. Their body is
// fixed fields, the object's header, zeros up to a multiple of kPayloadAlignment, the payload.
#include <algorithm>

#include "proto/put_fields.h"

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

// Reads an object. `in` stands at its header and reads `body` from the first byte.
Result<Object> get_object(ByteReader& in, const Bytes& body, FrameType type) {
  KV_ASSIGN_OR_RETURN(Object object, read_header(in, type));
  size_t padding = (kPayloadAlignment - in.at() % kPayloadAlignment) % kPayloadAlignment;
  auto zeros = in.raw(padding);
  if (std::any_of(zeros.begin(), zeros.end(), [](uint8_t b) { return b != 0; })) {
    in.fail("a byte that is not 0");
  }
  if (in.failed()) in.fail("padding before the payload: " + in.why());
  if (in.failed()) return bad_body(type, in);
  KV_RETURN_IF_ERROR(attach_payload(object, body.slice(in.at(), in.left())));
  return object;
}

}  // namespace

Result<Object> read_header(ByteReader& in, FrameType type) {
  ByteReader header(in.blob(kMaxObjectHeaderBytes));
  if (in.failed()) in.fail("object header: " + in.why());
  if (in.failed()) return bad_body(type, in);
  KV_ASSIGN_OR_RETURN(Object object, decode_header(header));
  if (!header.done()) return bad_body(type, header);
  return object;
}

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
  FieldWriter io(out);
  put_fields(io, timeout_ms, m);
  auto pieces = put_object(m.object, out);
  return finish_frame(FrameType::put, request, std::move(out), std::move(pieces));
}

Result<PutRequest> decode_put(const Bytes& body, uint32_t& timeout_ms) {
  ByteReader in(body.span());
  PutRequest m;
  FieldReader io(in);
  put_fields(io, timeout_ms, m);
  if (in.failed()) return bad_body(FrameType::put, in);
  KV_ASSIGN_OR_RETURN(m.object, get_object(in, body, FrameType::put));
  return m;
}

OutFrame fetch_object_frame(uint64_t request, const FetchedObject& m) {
  ByteWriter out = start_frame();
  out.u32(m.end_token);
  auto pieces = put_object(*m.object, out);
  OutFrame frame =
      finish_frame(FrameType::fetch_object, request, std::move(out), std::move(pieces));
  frame.kept = m.object;
  return frame;
}

Result<FetchedObject> decode_fetch_object(const Bytes& body) {
  ByteReader in(body.span());
  FetchedObject m;
  m.end_token = in.u32();
  if (in.failed()) in.fail("end_token: " + in.why());
  KV_ASSIGN_OR_RETURN(Object object, get_object(in, body, FrameType::fetch_object));
  m.object = std::make_shared<const Object>(std::move(object));
  return m;
}

}  // namespace kv
