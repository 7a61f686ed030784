// Status lines and headers.
#include "cachesvc/daemon/http_reply.h"

namespace kv {
namespace {

struct Reason {
  unsigned code;
  const char* words;
};
constexpr Reason kReasons[] = {{200, "OK"},
                               {303, "See Other"},
                               {400, "Bad Request"},
                               {401, "Unauthorized"},
                               {403, "Forbidden"},
                               {404, "Not Found"},
                               {405, "Method Not Allowed"},
                               {411, "Length Required"},
                               {413, "Content Too Large"},
                               {415, "Unsupported Media Type"},
                               {421, "Misdirected Request"},
                               {431, "Request Header Fields Too Large"},
                               {503, "Service Unavailable"}};

const char* reason_of(unsigned code) {
  for (const Reason& reason : kReasons) {
    if (reason.code == code) return reason.words;
  }
  return "Error";
}

unsigned code_of(StatusCode code) {
  switch (code) {
    case StatusCode::invalid_argument:
    case StatusCode::unsupported:
      return 400;
    case StatusCode::denied:
      return 403;
    case StatusCode::not_found:
      return 404;
    default:
      return 503;
  }
}

}  // namespace

HttpReply http_text(unsigned code, std::string_view text) {
  return {code, std::string(text) + "\n"};
}

HttpReply http_error(const Status& status) {
  return http_text(code_of(status.code()), status.message());
}

std::string http_bytes(const HttpReply& reply, bool only_head, bool keep) {
  std::string out = "HTTP/1.1 " + std::to_string(reply.code) + " " + reason_of(reply.code) + "\r\n";
  out.reserve(512 + (only_head ? 0 : reply.body.size()));
  auto header = [&](std::string_view name, std::string_view value) {
    out.append(name).append(": ").append(value).append("\r\n");
  };
  header("Content-Type", reply.type);
  header("Content-Length", std::to_string(reply.body.size()));
  header("Cache-Control", "no-store");
  header("X-Content-Type-Options", "nosniff");
  for (const auto& [name, value] : reply.headers) header(name, value);
  if (!keep) header("Connection", "close");
  out += "\r\n";
  if (!only_head) out += reply.body;
  return out;
}

}  // namespace kv
