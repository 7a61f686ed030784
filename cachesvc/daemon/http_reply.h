// HttpReply: an answer of the HTTP port, and its bytes on the wire. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/status.h"

namespace kv {

inline constexpr const char* kTextPlain = "text/plain; charset=utf-8";
inline constexpr const char* kJson = "application/json";
inline constexpr const char* kHtml = "text/html; charset=utf-8";

struct HttpReply {
  unsigned code = 200;
  std::string body;
  const char* type = kTextPlain;
  /// Further headers, by name.
  std::vector<std::pair<std::string, std::string>> headers = {};
};

/// One line of text.
HttpReply http_text(unsigned code, std::string_view text);
/// The answer of a call that failed: 4xx where the caller can do something about it, else 503.
HttpReply http_error(const Status& status);
/// `only_head`: the answer of HEAD. `keep`: the connection stays.
std::string http_bytes(const HttpReply& reply, bool only_head, bool keep);

}  // namespace kv
