// Status and Result<T>: how every module reports failure. No exceptions cross a module's edge.
//
// Bad data and a bad environment become a Status; a bug of ours is KV_CHECK (stays on in release);
// a misconfiguration refuses to start. Messages name the field and the limit, never prompt content.
// Values are plain data: const methods may run on any thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace kv {

/// The value on the wire is the value in the code (PROTOCOL.md, "Status codes"). Never renumber.
enum class StatusCode : uint8_t {
  ok = 0,
  not_found = 1,           ///< a miss: nothing is stored there
  invalid_argument = 2,    ///< the request is wrong; repeating it won't help
  corruption = 3,          ///< stored bytes don't verify; the object is a miss from now on
  unsupported = 4,         ///< known, and refused by name
  resource_exhausted = 5,  ///< can never fit the budget or the limit as it stands
  io_error = 6,            ///< the device or the peer failed
  internal = 7,            ///< a bug of ours
  busy = 8,                ///< not enough room now; try later
  deadline_exceeded = 9,   ///< the caller's deadline passed
  profile_changed = 10,    ///< another profile is in force; open the model again
  unavailable = 11,        ///< the service is closing or the connection is gone
  denied = 12,             ///< user, token or right does not allow it
  cancelled = 13,          ///< its client no longer wants it
};

const char* to_string(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == StatusCode::ok; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  /// "code: message", for logs and errors shown to people.
  std::string to_string() const;

 private:
  StatusCode code_ = StatusCode::ok;
  std::string message_;
};

/// A value or a non-ok Status; a strict subset of std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    if (status_.ok()) status_ = Status(StatusCode::internal, "ok Status in an empty Result");
  }
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

 private:
  Status status_;
  std::optional<T> value_;
};

inline Status invalid_argument(std::string message) {
  return {StatusCode::invalid_argument, std::move(message)};
}
/// A call that its caller has stopped.
inline Status cancelled() { return {StatusCode::cancelled, "stopped by its caller"}; }
inline Status corruption(std::string message) {
  return {StatusCode::corruption, std::move(message)};
}
inline Status unsupported(std::string message) {
  return {StatusCode::unsupported, std::move(message)};
}

[[noreturn]] inline void check_failed(const char* what, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s\n", file, line, what);
  std::abort();
}

}  // namespace kv

/// Our own invariants only, on in every build; never for input.
#define KV_CHECK(cond)                                          \
  do {                                                          \
    if (!(cond)) ::kv::check_failed(#cond, __FILE__, __LINE__); \
  } while (false)

#define KV_CONCAT_INNER(a, b) a##b
#define KV_CONCAT(a, b) KV_CONCAT_INNER(a, b)
/// KV_RETURN_IF_ERROR(status_expr);
#define KV_RETURN_IF_ERROR(expr)           \
  do {                                     \
    ::kv::Status kv_status = (expr);       \
    if (!kv_status.ok()) return kv_status; \
  } while (false)
/// KV_ASSIGN_OR_RETURN(auto x, result_expr);
#define KV_ASSIGN_OR_RETURN(decl, expr) \
  KV_ASSIGN_OR_RETURN_IMPL(KV_CONCAT(kv_result_, __LINE__), decl, expr)
#define KV_ASSIGN_OR_RETURN_IMPL(tmp, decl, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return tmp.status();             \
  decl = std::move(*tmp)
