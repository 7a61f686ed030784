// The parser's states, lines, inline commands, and replies.
#include "proto/resp.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

namespace kv {
namespace {

constexpr std::string_view kLineEnd = "\r\n";

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

char unescaped(char c) {
  switch (c) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    case 'b':
      return '\b';
    case 'a':
      return '\a';
    default:
      return c;
  }
}

// The character that begins with the backslash at `at`, which moves behind it.
char escape(std::string_view line, size_t& at) {
  if (at + 3 < line.size() && line[at + 1] == 'x') {
    const int high = hex_digit(line[at + 2]), low = hex_digit(line[at + 3]);
    if (high >= 0 && low >= 0) {
      at += 4;
      return static_cast<char>(high * 16 + low);
    }
  }
  at += 2;
  return unescaped(line[at - 1]);
}

// The text in quotes that begins at `at`, which moves behind it. Nothing if it does not end, or
// something follows at once.
std::optional<std::string> quoted(std::string_view line, size_t& at) {
  const char quote = line[at++];
  std::string text;
  while (at < line.size() && line[at] != quote) {
    const bool more = at + 1 < line.size();
    if (line[at] == '\\' && more && quote == '"') {
      text += escape(line, at);
    } else if (line[at] == '\\' && more && line[at + 1] == quote) {
      text += quote;
      at += 2;
    } else {
      text += line[at++];
    }
  }
  if (at == line.size()) return std::nullopt;
  ++at;
  if (at < line.size() && !is_space(line[at])) return std::nullopt;
  return text;
}

// The words of an inline command. Nothing if quotes don't match.
std::optional<std::vector<std::string>> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (size_t at = 0; at < line.size();) {
    if (is_space(line[at])) {
      ++at;
      continue;
    }
    std::string word;
    while (at < line.size() && !is_space(line[at])) {
      if (line[at] != '"' && line[at] != '\'') {
        word += line[at++];
        continue;
      }
      auto text = quoted(line, at);
      if (!text) return std::nullopt;
      word += *text;
    }
    words.push_back(std::move(word));
  }
  return words;
}

}  // namespace

std::optional<int64_t> resp_number(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end) return std::nullopt;
  const std::string_view digits = text.substr(text[0] == '-' ? 1 : 0);
  const bool plain = digits[0] != '0' || text == "0";
  return plain ? std::optional(value) : std::nullopt;
}

Status RespParser::fail(const std::string& what) {
  state_ = State::failed;
  error_ = invalid_argument("Protocol error: " + what);
  return error_;
}

std::span<uint8_t> RespParser::prepare() {
  switch (state_) {
    case State::buffer:
      return buffer_.subspan(got_);
    case State::skip:
      if (begin_ == end_) begin_ = end_ = 0;
      break;
    case State::line:
    case State::bulk:
    case State::bulk_end:
      std::copy(stage_.begin() + begin_, stage_.begin() + end_, stage_.begin());
      end_ -= std::exchange(begin_, 0);
      break;
    default:
      return {};
  }
  return std::span(stage_).subspan(end_);
}

Status RespParser::commit(size_t bytes) {
  if (state_ == State::failed) return error_;
  received_ += bytes;
  (state_ == State::buffer ? got_ : end_) += bytes;
  return advance();
}

// Goes on until a command is ready, or more bytes, a buffer or a new connection is needed.
Status RespParser::advance() {
  while (true) {
    switch (state_) {
      case State::line: {
        auto line = take_line();
        if (!error_.ok()) return error_;
        if (!line) return {};
        KV_RETURN_IF_ERROR(arguments_left_ == 0 ? take_head(*line) : take_bulk_head(*line));
        break;
      }
      case State::bulk:
      case State::skip:
        take_bytes();
        [[fallthrough]];
      case State::buffer:
        if (got_ < now_.bytes) return {};
        state_ = State::bulk_end;
        break;
      case State::bulk_end:
        if (end_ - begin_ < kLineEnd.size()) return {};
        KV_RETURN_IF_ERROR(take_bulk_end());
        break;
      case State::awaiting:
      case State::ready:
        return {};
      case State::failed:
        return error_;
    }
  }
}

// The next line without its end; valid until more is read.
std::optional<std::string_view> RespParser::take_line() {
  const auto* from = reinterpret_cast<const char*>(stage_.data()) + begin_;
  const std::string_view left(from, end_ - begin_);
  const size_t at = left.find('\n');
  if (at == left.npos) {
    const char first = left.empty() ? '\0' : left[0];
    if (left.size() == stage_.size()) {
      (void)fail(arguments_left_ > 0 ? "too big bulk count string"
                 : first == '*'      ? "too big mbulk count string"
                                     : "too big inline request");
    }
    return std::nullopt;
  }
  begin_ += at + 1;
  return left.substr(0, at > 0 && left[at - 1] == '\r' ? at - 1 : at);
}

Status RespParser::take_head(std::string_view line) {
  if (line.empty() || line[0] != '*') return take_inline(line);
  const uint32_t most = newcomer_ ? kMaxRespNewcomerArguments : kMaxRespArguments;
  auto count = resp_number(line.substr(1));
  if (!count || (*count > most && !newcomer_)) return fail("invalid multibulk length");
  if (*count > most) return fail("unauthenticated multibulk length");
  arguments_left_ = static_cast<uint64_t>(std::max<int64_t>(*count, 0));
  if (arguments_left_ == 0) received_ = end_ - begin_;
  return {};
}

Status RespParser::take_inline(std::string_view line) {
  auto words = words_of(line);
  if (!words) return fail("unbalanced quotes in request");
  if (words->empty()) {
    received_ = end_ - begin_;
    return {};
  }
  if (words->size() > kMaxRespArguments) return fail("too big inline request");
  now_.command.arguments = std::move(*words);
  state_ = State::ready;
  return {};
}

Status RespParser::take_bulk_head(std::string_view line) {
  if (line.empty() || line[0] != '$') {
    return fail("expected '$', got '" + std::string(1, line.empty() ? ' ' : line[0]) + "'");
  }
  auto bytes = resp_number(line.substr(1));
  if (!bytes || *bytes < 0 || static_cast<uint64_t>(*bytes) > kMaxRespBulkBytes) {
    return fail("invalid bulk length");
  }
  if (newcomer_ && static_cast<uint64_t>(*bytes) > kMaxRespNewcomerBulkBytes) {
    return fail("unauthenticated bulk length");
  }
  now_.bytes = static_cast<uint64_t>(*bytes);
  got_ = 0;
  if (now_.bytes > kMaxRespKeptBytes - kept_) {
    state_ = State::awaiting;
    return {};
  }
  kept_ += now_.bytes;
  now_.command.arguments.emplace_back().reserve(now_.bytes);
  state_ = State::bulk;
  return {};
}

// Takes what was read ahead of the argument under way.
void RespParser::take_bytes() {
  const size_t here = std::min<uint64_t>(now_.bytes - got_, end_ - begin_);
  const uint8_t* from = stage_.data() + begin_;
  if (state_ == State::bulk) {
    now_.command.arguments.back().append(reinterpret_cast<const char*>(from), here);
  } else if (state_ == State::buffer && here > 0) {
    std::memcpy(buffer_.data() + got_, from, here);
  }
  begin_ += here;
  got_ += here;
}

Status RespParser::take_bulk_end() {
  if (std::memcmp(stage_.data() + begin_, kLineEnd.data(), kLineEnd.size()) != 0) {
    return fail("expected the end of an argument");
  }
  begin_ += kLineEnd.size();
  state_ = --arguments_left_ == 0 ? State::ready : State::line;
  return {};
}

void RespParser::begin_body(State state) {
  KV_CHECK(state_ == State::awaiting);
  RespCommand& command = now_.command;
  auto& which = state == State::buffer ? command.buffered : command.dropped;
  if (!which) which = command.arguments.size();
  command.arguments.emplace_back();
  state_ = state;
  take_bytes();
}

void RespParser::use_buffer(std::span<uint8_t> buffer) {
  KV_CHECK(buffer.size() == now_.bytes && !now_.command.buffered);
  buffer_ = buffer;
  begin_body(State::buffer);
  (void)advance();  // an error is told by next()
}

void RespParser::skip_body() {
  begin_body(State::skip);
  (void)advance();
}

std::optional<RespCommand> RespParser::next() {
  if (state_ == State::line && !advance().ok()) return std::nullopt;
  if (state_ != State::ready) return std::nullopt;
  RespCommand command = std::move(now_.command);
  now_ = {};
  buffer_ = {};
  got_ = kept_ = 0;
  received_ = end_ - begin_;
  state_ = State::line;
  return command;
}

void RespWriter::line(char type, std::string_view text) {
  bytes_.push_back(static_cast<uint8_t>(type));
  raw(text);
  raw(kLineEnd);
}

void RespWriter::error(std::string_view text) {
  std::string clean(text);
  std::replace_if(
      clean.begin(), clean.end(), [](char c) { return c == '\r' || c == '\n'; }, ' ');
  line('-', clean);
}

void RespWriter::bulk(std::string_view bytes) {
  bulk_head(bytes.size());
  raw(bytes);
  raw(kLineEnd);
}

}  // namespace kv
