// Replies of RESP2 for tests: parsed in pieces of any size, and written back. No test framework:
// for the fuzz target too.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "proto/resp_reply.h"

namespace kv::testing {

struct RespReplyRun {
  std::vector<RespReply> replies;
  std::vector<std::string> places;  ///< of each reply, what lies in its place
  Status error;
  bool at_boundary = false;
  bool failed_for_good = false;
};

/// Parses the stream in pieces whose sizes `next_size` gives; every reply has a place of
/// `place_bytes`.
template <typename NextSize>
RespReplyRun parse_replies(std::string_view stream, NextSize next_size, size_t place_bytes = 0) {
  RespReplyParser parser;
  RespReplyRun run;
  std::vector<uint8_t> place(place_bytes);
  while (run.error.ok() && !stream.empty()) {
    auto to = parser.prepare();
    KV_CHECK(!to.empty());
    const size_t n = std::min({to.size(), stream.size(), static_cast<size_t>(next_size())});
    std::memcpy(to.data(), stream.data(), n);
    stream.remove_prefix(n);
    parser.commit(n);
    while ((run.error = parser.parse(place)).ok() && parser.ready()) {
      run.replies.push_back(parser.take());
      const RespReply& r = run.replies.back();
      const auto* data = reinterpret_cast<const char*>(place.data());
      run.places.emplace_back(data, r.placed ? static_cast<size_t>(r.integer) : 0);
    }
  }
  run.at_boundary = parser.at_boundary();
  run.failed_for_good = !parser.parse(place).ok() && parser.prepare().empty();
  return run;
}

inline std::string reply_text(const RespReply& reply, const std::string& placed = {}) {
  switch (reply.type) {
    case RespType::simple:
      return "+" + reply.text + "\r\n";
    case RespType::error:
      return "-" + reply.text + "\r\n";
    case RespType::integer:
      return ":" + std::to_string(reply.integer) + "\r\n";
    case RespType::null:
      return "$-1\r\n";
    case RespType::bulk: {
      const std::string& bytes = reply.placed ? placed : reply.text;
      return "$" + std::to_string(bytes.size()) + "\r\n" + bytes + "\r\n";
    }
    case RespType::array:
      break;
  }
  std::string out = "*" + std::to_string(reply.items.size()) + "\r\n";
  for (const auto& item : reply.items) out += reply_text(item);
  return out;
}

}  // namespace kv::testing
