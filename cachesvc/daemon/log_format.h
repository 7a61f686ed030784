// Log lines: text for people, or one JSON object a line with fields to query.
//
// A message may hold names that a client chose: control characters, bytes that are no UTF-8 and
// what turns a line around are written as \n, \x1b or \u202e in both forms, so that a line is one
// line, and its own. Pure functions and formatters; a formatter belongs to one sink.
#pragma once

#include <spdlog/formatter.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace kv {

/// A number of a line, by name, for whoever queries the log.
struct LogField {
  const char* name;
  uint64_t value;
};
struct LogFields {
  const char* kind = "";  ///< what the line is of: "ssd_evicted"; empty: none
  std::initializer_list<LogField> numbers;
};

/// `text` with everything escaped that would make it more than visible text of one line.
std::string printable_line(std::string_view text);
/// The same as the inside of a JSON string.
std::string json_text(std::string_view text);

/// Fields of the lines that this thread logs while it lives.
class LogFieldsScope {
 public:
  explicit LogFieldsScope(const LogFields& fields);
  ~LogFieldsScope();
  LogFieldsScope(const LogFieldsScope&) = delete;  // the thread points to the fields
  LogFieldsScope& operator=(const LogFieldsScope&) = delete;
};

std::unique_ptr<spdlog::formatter> make_log_formatter(bool json);

}  // namespace kv
