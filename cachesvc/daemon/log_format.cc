// Escapes, and the two patterns.
#include "cachesvc/daemon/log_format.h"

#include <spdlog/pattern_formatter.h>

namespace kv {
namespace {

thread_local const LogFields* line_fields = nullptr;

// Length of the well-formed UTF-8 character that `text` begins with; 0 if there is none.
size_t utf8_length(std::string_view text, uint32_t& code) {
  auto at = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = at(0);
  const size_t n = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
  if (n == 0 || first > 0xf4 || text.size() < n) return 0;
  code = n == 1 ? first : first & (0x7fu >> n);
  for (size_t i = 1; i < n; ++i) {
    if ((at(i) & 0xc0) != 0x80) return 0;
    code = code << 6 | (at(i) & 0x3f);
  }
  const bool surrogate = code >= 0xd800 && code <= 0xdfff;
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  return surrogate || overlong || code > 0x10ffff ? 0 : n;
}

// Controls, separators of lines, and what changes the direction of the text around it.
bool invisible(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x2028 || code == 0x2029 ||
         code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

void append_hex(std::string& out, uint32_t value, int digits) {
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) {
    out += "0123456789abcdef"[value >> shift & 15];
  }
}

void append_escaped(std::string& out, uint32_t code) {
  if (code == '\n' || code == '\r' || code == '\t') {
    out += code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t";
  } else {
    out += code < 0x100 ? "\\x" : "\\u";
    append_hex(out, code, code < 0x100 ? 2 : 4);
  }
}

// %* : the message, escaped as its form demands.
class Message final : public spdlog::custom_flag_formatter {
 public:
  explicit Message(bool json) : json_(json) {}
  void format(const spdlog::details::log_msg& message, const std::tm&,
              spdlog::memory_buf_t& out) override {
    std::string_view text(message.payload.data(), message.payload.size());
    const std::string line = json_ ? json_text(text) : printable_line(text);
    out.append(line.data(), line.data() + line.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<Message>(json_);
  }

 private:
  const bool json_;
};

// %& : the fields, each behind a comma.
class Fields final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    if (line_fields == nullptr) return;
    std::string text;
    if (*line_fields->kind != 0) text = ",\"kind\":\"" + json_text(line_fields->kind) + "\"";
    for (const LogField& f : line_fields->numbers) {
      text += ",\"" + json_text(f.name) + "\":" + std::to_string(f.value);
    }
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<Fields>();
  }
};

}  // namespace

std::string printable_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    uint32_t code = 0;
    size_t n = utf8_length(text, code);
    if (n == 0) {
      n = 1;
      append_escaped(out, static_cast<unsigned char>(text[0]));
    } else if (invisible(code)) {
      append_escaped(out, code);
    } else {
      out += text.substr(0, n);
    }
    text.remove_prefix(n);
  }
  return out;
}

std::string json_text(std::string_view text) {
  std::string out;
  for (char c : printable_line(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

LogFieldsScope::LogFieldsScope(const LogFields& fields) { line_fields = &fields; }
LogFieldsScope::~LogFieldsScope() { line_fields = nullptr; }

std::unique_ptr<spdlog::formatter> make_log_formatter(bool json) {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<Message>('*', json).add_flag<Fields>('&');
  formatter->set_pattern(json ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l"%&,"message":"%*"})"
                              : "%Y-%m-%dT%H:%M:%S.%e %L %*");
  return formatter;
}

}  // namespace kv
