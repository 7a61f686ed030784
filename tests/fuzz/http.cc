// Fuzz target: a stream of HTTP requests, in pieces whose size the first byte gives; and of each
// what our own code reads: host, origin, token, query and form.
#include <string>

#include "cachesvc/daemon/http_checks.h"
#include "cachesvc/daemon/http_form.h"
#include "cachesvc/daemon/http_names.h"
#include "tests/support/cachesvc_http.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t step = 1 + data[0] % 61u;
  const std::string_view stream(reinterpret_cast<const char*>(data) + 1, size - 1);
  // The parts get the bytes themselves too: a request seldom comes whole out of a mutation.
  kv::is_own_host(stream);
  kv::is_own_origin(stream, stream);
  kv::token_of(stream);
  if (kv::from_base64(stream).size() > stream.size()) __builtin_trap();
  auto form = kv::HttpForm::read(stream);
  if (form.ok()) (void)form->tokens("tokens");
  const std::string shown = kv::shown_name(stream);
  for (char c : shown) {
    if (c == '\n' || c == '\0') __builtin_trap();
  }
  kv::HttpRun run = kv::parse_http(stream, [&] { return step; });
  for (const kv::HttpRequest& request : run.requests) {
    if (request.body.size() > kv::kMaxHttpBodyBytes) __builtin_trap();
    kv::is_own_host(request.host);
    kv::token_of(request.authorization);
    (void)kv::HttpForm::read(kv::split_target(request.target).second);
  }
  return 0;
}
