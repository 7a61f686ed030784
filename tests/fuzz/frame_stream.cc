// Fuzz target: a stream of frames, in pieces whose size the first byte gives, bodies decoded.
#include "tests/support/proto_testing.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  size_t step = data[0] == 'K' ? 64 : 1 + data[0] % 61u;  // golden frames begin with 'K' themselves
  std::span<const uint8_t> left(data, size);
  if (data[0] != 'K') left = left.subspan(1);
  kv::FrameParser parser;
  parser.set_greeted(true);
  while (!left.empty()) {
    auto taken = kv::testing::feed(parser, left.first(std::min(step, left.size())));
    if (!taken.ok()) return 0;
    left = left.subspan(*taken);
    if (parser.body_capacity() > size + kv::kBodyStepBytes) __builtin_trap();
    while (auto frame = parser.next()) (void)kv::testing::decode_any(*frame).ok();
    if (!parser.error().ok()) return 0;
  }
  return 0;
}
