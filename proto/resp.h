// RESP2: the wire of Redis as a server speaks it, commands in and replies out.
//
// Sans-io: RespParser takes bytes as they arrive and gives whole commands, inline ones too; it
// never reads a socket. Every length is checked before it is believed. A command's arguments are
// kept as long as they are few bytes together; one that is more waits for a buffer or is dropped
// (awaiting()), so a parser's memory is kMaxRespLineBytes of read-ahead, kMaxRespKeptBytes and
// kMaxRespArguments strings. After an error the stream is out of step: the connection must end; the
// error's message is what Redis answers then. One parser per connection, one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/status.h"

namespace kv {

inline constexpr size_t kMaxRespLineBytes = 16u << 10;  ///< an inline command, or a length
inline constexpr uint32_t kMaxRespArguments = 1024;
inline constexpr uint64_t kMaxRespBulkBytes = 512ull << 20;  ///< one argument, as with Redis
inline constexpr size_t kMaxRespKeptBytes = 32u << 10;       ///< of a command, without a buffer
/// Limits before a password came, as with Redis.
inline constexpr uint32_t kMaxRespNewcomerArguments = 10;
inline constexpr uint64_t kMaxRespNewcomerBulkBytes = 16u << 10;

/// A number as Redis reads it: no sign but a minus, no leading zero, nothing behind it.
std::optional<int64_t> resp_number(std::string_view text);

struct RespCommand {
  std::vector<std::string> arguments;  ///< its name first; one that isn't kept is empty
  std::optional<size_t> buffered;      ///< the argument that lies in a buffer
  std::optional<size_t> dropped;       ///< the first one that was dropped
};

/// An argument that needs a place: `command` has those before it.
struct RespBulk {
  RespCommand command;
  uint64_t bytes = 0;
};

/// Use: while (auto c = next()) …;  read into prepare();  commit(bytes read).
class RespParser {
 public:
  using Message = RespCommand;

  RespParser() : stage_(kMaxRespLineBytes) {}
  RespParser(const RespParser&) = delete;  // callers hold spans into it
  RespParser& operator=(const RespParser&) = delete;

  /// Limits of the commands that come from now on.
  void set_newcomer(bool newcomer) { newcomer_ = newcomer; }

  /// Place of the next received bytes; never empty unless a command is ready, awaiting() or failed.
  std::span<uint8_t> prepare();
  /// `bytes` of the span from prepare() were filled. Returns: invalid_argument. An error repeats
  /// for good.
  Status commit(size_t bytes);

  /// The next complete command, of at least one argument. Taking one parses what was read ahead:
  /// after nullopt, ask error().
  std::optional<RespCommand> next();
  const Status& error() const { return error_; }
  /// The argument whose bytes need a place, or nullptr.
  const RespBulk* awaiting() const { return state_ == State::awaiting ? &now_ : nullptr; }
  uint64_t body_bytes() const { return now_.bytes; }  ///< its bytes
  /// The place for it: body_bytes() of them, alive until next() gives its command.
  void use_buffer(std::span<uint8_t> buffer);
  /// It is read and dropped.
  void skip_body();

  /// Bytes of the command under way that have arrived.
  uint64_t received() const { return received_; }
  /// True if nothing of a command has arrived: here a peer may close cleanly.
  bool at_boundary() const {
    return state_ == State::line && arguments_left_ == 0 && begin_ == end_;
  }

 private:
  enum class State { line, bulk, awaiting, buffer, skip, bulk_end, ready, failed };
  Status advance();
  Status fail(const std::string& what);
  std::optional<std::string_view> take_line();
  Status take_head(std::string_view line);
  Status take_inline(std::string_view line);
  Status take_bulk_head(std::string_view line);
  void take_bytes();
  Status take_bulk_end();
  void begin_body(State state);

  State state_ = State::line;
  bool newcomer_ = false;
  uint64_t arguments_left_ = 0;  // of the array under way; 0: none is
  RespBulk now_;                 // the command so far, and its argument under way
  uint64_t got_ = 0;             // bytes of that argument
  size_t kept_ = 0;              // bytes of the arguments kept
  uint64_t received_ = 0;
  std::span<uint8_t> buffer_;
  std::vector<uint8_t> stage_;  // read ahead: [begin_, end_)
  size_t begin_ = 0, end_ = 0;
  Status error_;
};

/// Appends replies.
class RespWriter {
 public:
  void simple(std::string_view text) { line('+', text); }
  /// `text` begins with a word in capitals; line ends in it become spaces.
  void error(std::string_view text);
  void integer(uint64_t value) { line(':', std::to_string(value)); }
  void bulk(std::string_view bytes);
  /// The head of a bulk whose bytes and "\r\n" follow by other ways.
  void bulk_head(uint64_t bytes) { line('$', std::to_string(bytes)); }
  void null() { line('$', "-1"); }
  void array(size_t items) { line('*', std::to_string(items)); }  ///< its items follow
  std::vector<uint8_t> take() { return std::move(bytes_); }

 private:
  void line(char type, std::string_view text);
  void raw(std::string_view text) { bytes_.insert(bytes_.end(), text.begin(), text.end()); }

  std::vector<uint8_t> bytes_;
};

}  // namespace kv
