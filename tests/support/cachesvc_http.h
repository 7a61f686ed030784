// A stream of HTTP requests through the parser, in pieces.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "cachesvc/daemon/http_parser.h"

namespace kv {

struct HttpRun {
  std::vector<HttpRequest> requests;
  unsigned code = 0;  ///< HTTP's status of the error; 0: none
};

inline HttpRun parse_http(std::string_view stream, const std::function<size_t()>& step) {
  HttpRun run;
  HttpParser parser;
  while (true) {
    while (auto request = parser.next()) run.requests.push_back(std::move(*request));
    run.code = parser.error_code();
    if (!parser.error().ok() || stream.empty()) return run;
    auto to = parser.prepare();
    const size_t n = std::min({to.size(), stream.size(), step()});
    if (n == 0) __builtin_trap();  // it would wait for ever
    std::memcpy(to.data(), stream.data(), n);
    stream.remove_prefix(n);
    if (!parser.commit(n).ok()) return run;
  }
}

}  // namespace kv
