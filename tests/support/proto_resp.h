// Commands of RESP2 for tests: written, and parsed in pieces of any size.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "proto/resp.h"
#include "tests/support/proto_testing.h"

namespace kv::testing {

inline std::string resp_command(const std::vector<std::string>& words) {
  std::string out = "*" + std::to_string(words.size()) + "\r\n";
  for (const auto& w : words) out += "$" + std::to_string(w.size()) + "\r\n" + w + "\r\n";
  return out;
}

struct RespRun {
  std::vector<std::vector<std::string>> commands;  ///< what went to a buffer is in its place
  size_t buffered = 0, dropped = 0;                ///< commands with such an argument
  Status error;
  bool at_boundary = false;
  bool failed_for_good = false;
};

/// Parses the stream in pieces whose sizes `next_size` gives. `take`: large arguments get a buffer
/// while the command has none yet; else they are dropped.
template <typename NextSize>
RespRun parse_resp(std::string_view stream, NextSize next_size, bool newcomer = false,
                   bool take = true) {
  RespParser parser;
  parser.set_newcomer(newcomer);
  RespRun run;
  std::vector<uint8_t> buffer;
  auto settle = [&] {
    while (true) {
      if (const RespBulk* bulk = parser.awaiting()) {
        if (take && !bulk->command.buffered) {
          buffer.assign(bulk->bytes, 0);
          parser.use_buffer(buffer);
        } else {
          parser.skip_body();
        }
        continue;
      }
      auto command = parser.next();
      if (!command && parser.awaiting() == nullptr) return;
      if (!command) continue;
      run.buffered += command->buffered.has_value();
      run.dropped += command->dropped.has_value();
      if (command->buffered) {
        command->arguments[*command->buffered].assign(buffer.begin(), buffer.end());
      }
      run.commands.push_back(std::move(command->arguments));
    }
  };
  while (!stream.empty() && parser.error().ok()) {
    auto to = parser.prepare();
    const size_t n = std::min({to.size(), stream.size(), static_cast<size_t>(next_size())});
    KV_CHECK(n > 0);
    std::memcpy(to.data(), stream.data(), n);
    stream.remove_prefix(n);
    (void)parser.commit(n);
    settle();
  }
  run.error = parser.error();
  run.at_boundary = parser.at_boundary();
  run.failed_for_good = !parser.commit(0).ok() && parser.prepare().empty();
  return run;
}

}  // namespace kv::testing
