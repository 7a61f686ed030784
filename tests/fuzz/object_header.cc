// Fuzz target: an object's header. What decodes must come back from its own encoding.
#include "tests/support/proto_payload_bytes.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  kv::ByteReader in({data, size});
  auto object = kv::decode_header(in);
  if (!object.ok()) return 0;
  (void)kv::testing::expected_payload_bytes(*object);
  kv::ByteWriter out;
  kv::encode_header(*object, out);
  if (out.size() != in.at() || std::memcmp(out.span().data(), data, out.size()) != 0)
    __builtin_trap();
  return 0;
}
