// Fuzz target: a stream of RESP2 replies, in pieces whose size the first byte gives, with a place
// for bulks or without.
#include "tests/support/proto_resp_reply.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0] % 61u;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  kv::testing::RespReplyRun run = kv::testing::parse_replies(
      stream, [&] { return step; }, (data[0] & 64) != 0 ? 20 : 0);
  size_t bytes = 0;
  for (size_t i = 0; i < run.replies.size(); ++i) {
    if (run.replies[i].placed && run.places[i].size() > 20) __builtin_trap();
    bytes += kv::testing::reply_text(run.replies[i], run.places[i]).size();
  }
  if (bytes > stream.size()) __builtin_trap();
  return 0;
}
