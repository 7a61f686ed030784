// Fuzz target: one body, of the type that the input's header (or its first two bytes) names; no CRC
// in the way. What decodes must encode.
#include "tests/support/proto_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = size >= kv::kFrameHeaderBytes && data[0] == 'K' ? 6 : 0;
  size_t body = at == 6 ? kv::kFrameHeaderBytes : 2;
  if (size < body) return 0;
  kv::Frame frame;
  frame.header.type = static_cast<kv::FrameType>(data[at] | data[at + 1] << 8);
  frame.body = kv::Bytes::copy_of({data + body, size - body});
  (void)kv::testing::decode_any(frame).ok();
  return 0;
}
