// HttpParser: a connection's HTTP/1 requests as they arrive, by Boost.Beast's parser, sans-io.
//
// Bounded: the head of a request (request line and headers), its body, and what is read ahead. A
// request whose body has no length of its own (chunked) is refused. After an error the stream is
// out of step: the connection must end. One parser per connection, one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "proto/status.h"

namespace kv {

inline constexpr size_t kMaxHttpHeadBytes = 8u << 10;
inline constexpr size_t kMaxHttpBodyBytes = 64u << 10;  ///< a prompt of some 10,000 tokens

/// A request, and of its headers what the service looks at.
struct HttpRequest {
  std::string method;  ///< "GET"
  std::string target;  ///< "/status?model=a"
  std::string host, origin, authorization, accept, content_type;
  bool several_hosts = false;
  std::string body;
  bool keep_alive = false;
};

/// Use: while (auto r = next()) …;  read into prepare();  commit(bytes read).
class HttpParser {
 public:
  using Message = HttpRequest;

  HttpParser();
  ~HttpParser();
  HttpParser(const HttpParser&) = delete;  // callers hold spans into it
  HttpParser& operator=(const HttpParser&) = delete;

  std::span<uint8_t> prepare();  ///< place of the next received bytes
  Status commit(size_t bytes);
  /// The next complete request.
  std::optional<HttpRequest> next();
  const Status& error() const { return error_; }
  unsigned error_code() const { return error_code_; }  ///< HTTP's status of the error

  // Bodies need no place of their own.
  const void* awaiting() const { return nullptr; }
  uint64_t body_bytes() const { return 0; }
  void use_buffer(std::span<uint8_t>) {}
  void skip_body() {}

  /// Bytes of the request under way that have arrived.
  uint64_t received() const { return taken_ + end_ - begin_; }
  bool at_boundary() const { return taken_ == 0 && begin_ == end_; }

 private:
  struct Beast;
  void fail(unsigned code, std::string why);
  HttpRequest taken();

  std::unique_ptr<Beast> beast_;
  std::vector<uint8_t> stage_;
  size_t begin_ = 0, end_ = 0;  // bytes of the stage that were read and not taken
  uint64_t taken_ = 0;          // bytes of the request under way that Beast has
  Status error_;
  unsigned error_code_ = 0;
};

}  // namespace kv
