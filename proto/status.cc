// Names of status codes, as people and logs see them.
#include "proto/status.h"

namespace kv {

const char* to_string(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::not_found:
      return "not_found";
    case StatusCode::invalid_argument:
      return "invalid_argument";
    case StatusCode::corruption:
      return "corruption";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::resource_exhausted:
      return "resource_exhausted";
    case StatusCode::io_error:
      return "io_error";
    case StatusCode::internal:
      return "internal";
    case StatusCode::busy:
      return "busy";
    case StatusCode::deadline_exceeded:
      return "deadline_exceeded";
    case StatusCode::profile_changed:
      return "profile_changed";
    case StatusCode::unavailable:
      return "unavailable";
    case StatusCode::denied:
      return "denied";
    case StatusCode::cancelled:
      return "cancelled";
  }
  return "unknown";
}

std::string Status::to_string() const {
  if (ok()) return "ok";
  return std::string(kv::to_string(code_)) + ": " + message_;
}

}  // namespace kv
