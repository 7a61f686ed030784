// HttpForm: the fields of a query or of a form (application/x-www-form-urlencoded), by name. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/plane.h"
#include "proto/status.h"

namespace kv {

class HttpForm {
 public:
  static constexpr size_t kMaxFields = 32;

  /// Returns: invalid_argument (a broken escape, a field twice, too many fields).
  static Result<HttpForm> read(std::string_view text);

  /// Empty: there is none.
  const std::string& get(const std::string& name) const;
  bool has(const std::string& name) const { return fields_.contains(name); }
  /// A list of tokens with commas; none: empty. Returns: invalid_argument.
  Result<std::vector<Token>> tokens(const std::string& name) const;
  /// A field that no name of `known` is; empty: all are known.
  std::string unknown(const std::vector<std::string>& known) const;

 private:
  std::map<std::string, std::string> fields_;
};

/// "/status?model=a" as its path and its query.
std::pair<std::string_view, std::string_view> split_target(std::string_view target);

}  // namespace kv
