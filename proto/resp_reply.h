// RESP2 as a client reads it: replies. Commands are written by RespWriter (proto/resp.h).
//
// Sans-io: RespReplyParser takes bytes as they arrive and gives whole replies, one at a time; it
// never reads a socket. Every length is checked before it is believed. A bulk that is a whole reply
// goes to the place that its reader gives for it, or is dropped where it is longer; all others are
// kept, so a parser's memory is kMaxRespLineBytes of read-ahead, kMaxRespReplyBytes and
// kMaxRespReplyItems items. After an error the stream is out of step: the connection must end. One
// parser per connection, one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "proto/resp.h"
#include "proto/status.h"

namespace kv {

inline constexpr size_t kMaxRespReplyBytes = 4u << 20;  ///< of bulks kept, together
inline constexpr uint32_t kMaxRespReplyItems = 1u << 16;
inline constexpr size_t kMaxRespReplyDepth = 8;

enum class RespType : uint8_t { simple, error, integer, bulk, null, array };

struct RespReply {
  RespType type = RespType::null;
  std::string text;              ///< simple, error, a bulk that was kept
  int64_t integer = 0;           ///< its value; of a bulk its length
  bool placed = false;           ///< the bulk lies in the place given
  std::vector<RespReply> items;  ///< of an array
};

/// Use: read into prepare(); commit(bytes read); while (parse(place) is ok && ready()) take().
class RespReplyParser {
 public:
  RespReplyParser() : stage_(kMaxRespLineBytes) {}
  RespReplyParser(const RespReplyParser&) = delete;  // callers hold spans into it
  RespReplyParser& operator=(const RespReplyParser&) = delete;

  /// Place of the next received bytes; never empty unless a reply is ready or the parser failed.
  std::span<uint8_t> prepare();
  /// `bytes` of the span from prepare() were filled.
  void commit(size_t bytes);
  /// Goes on with the reply under way. `place`: where it goes if it is a bulk, the same span until
  /// the reply is ready; empty: a bulk is kept. Returns: corruption, for good.
  Status parse(std::span<uint8_t> place);
  bool ready() const { return state_ == State::ready; }
  RespReply take();
  /// True if nothing of a reply has arrived.
  bool at_boundary() const {
    return state_ == State::line && open_.empty() && items_ == 0 && begin_ == end_;
  }

 private:
  enum class State : uint8_t { line, kept, placed, dropped, bulk_end, ready, failed };
  struct Open {
    RespReply* array;
    uint32_t left;  // items that it lacks
  };

  Status fail(const std::string& what);
  std::optional<std::string_view> take_line();
  Status take_head(std::string_view line, std::span<uint8_t> place);
  Status begin_bulk(RespReply& item, int64_t bytes, std::span<uint8_t> place);
  Status begin_array(RespReply& item, int64_t count);
  void take_bytes(std::span<uint8_t> place);
  Status take_bulk_end();
  void item_done();

  State state_ = State::line;
  RespReply reply_;
  std::vector<Open> open_;      // arrays under way, outermost first
  RespReply* now_ = nullptr;    // the bulk under way
  uint32_t items_ = 0;          // of the reply, itself included
  size_t kept_ = 0;             // bytes of its bulks kept
  uint64_t bytes_ = 0;          // of the bulk under way
  uint64_t got_ = 0;            // of these
  std::span<uint8_t> place_;    // its place, as in the last parse()
  std::vector<uint8_t> stage_;  // read ahead: [begin_, end_)
  size_t begin_ = 0, end_ = 0;
  Status error_;
};

}  // namespace kv
