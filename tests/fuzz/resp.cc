// Fuzz target: a stream of RESP2 commands, in pieces whose size the first byte gives; large
// arguments go to a buffer or are dropped.
#include "tests/support/proto_resp.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0] % 61u;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  kv::testing::RespRun run = kv::testing::parse_resp(
      stream, [&] { return step; }, (data[0] & 64) != 0, (data[0] & 128) == 0);
  size_t bytes = 0;
  for (const auto& command : run.commands) {
    if (command.empty()) __builtin_trap();
    for (const auto& argument : command) bytes += argument.size();
  }
  if (bytes > stream.size()) __builtin_trap();
  return 0;
}
