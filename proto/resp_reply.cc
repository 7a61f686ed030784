// The reply parser's states.
#include "proto/resp_reply.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kv {

Status RespReplyParser::fail(const std::string& what) {
  state_ = State::failed;
  error_ = corruption("no RESP reply: " + what);
  return error_;
}

std::span<uint8_t> RespReplyParser::prepare() {
  if (state_ == State::ready || state_ == State::failed) return {};
  if (state_ == State::placed && begin_ == end_) return place_.first(bytes_).subspan(got_);
  std::copy(stage_.begin() + begin_, stage_.begin() + end_, stage_.begin());
  end_ -= std::exchange(begin_, 0);
  return std::span(stage_).subspan(end_);
}

void RespReplyParser::commit(size_t bytes) {
  if (state_ == State::failed) return;
  if (state_ == State::placed && begin_ == end_) {
    got_ += bytes;
  } else {
    end_ += bytes;
  }
}

Status RespReplyParser::parse(std::span<uint8_t> place) {
  place_ = place;
  while (true) {
    switch (state_) {
      case State::line: {
        auto line = take_line();
        if (!error_.ok()) return error_;
        if (!line) return {};
        KV_RETURN_IF_ERROR(take_head(*line, place));
        break;
      }
      case State::kept:
      case State::placed:
      case State::dropped:
        take_bytes(place);
        if (got_ < bytes_) return {};
        state_ = State::bulk_end;
        break;
      case State::bulk_end:
        if (end_ - begin_ < 2) return {};
        KV_RETURN_IF_ERROR(take_bulk_end());
        break;
      case State::ready:
        return {};
      case State::failed:
        return error_;
    }
  }
}

RespReply RespReplyParser::take() {
  KV_CHECK(ready());
  state_ = State::line;
  items_ = 0;
  kept_ = 0;
  return std::exchange(reply_, {});
}

// The next line without its end; valid until more is read.
std::optional<std::string_view> RespReplyParser::take_line() {
  const std::string_view left(reinterpret_cast<const char*>(stage_.data()) + begin_, end_ - begin_);
  const size_t at = left.find('\n');
  if (at == left.npos) {
    if (left.size() == stage_.size()) (void)fail("too long a line");
    return std::nullopt;
  }
  if (at == 0 || left[at - 1] != '\r') {
    (void)fail("a line that does not end in CR LF");
    return std::nullopt;
  }
  begin_ += at + 1;
  return left.substr(0, at - 1);
}

Status RespReplyParser::take_head(std::string_view line, std::span<uint8_t> place) {
  if (++items_ > kMaxRespReplyItems) return fail("too many items");
  RespReply& item = open_.empty() ? reply_ : open_.back().array->items.emplace_back();
  const char type = line.empty() ? '\0' : line[0];
  const std::string_view rest = line.substr(std::min<size_t>(line.size(), 1));
  if (type == '+' || type == '-') {
    if ((kept_ += rest.size()) > kMaxRespReplyBytes) return fail("too many bytes");
    item.type = type == '+' ? RespType::simple : RespType::error;
    item.text = rest;
    item_done();
    return {};
  }
  if (type != ':' && type != '$' && type != '*') return fail("an unknown type");
  auto value = resp_number(rest);
  if (!value) return fail("a length or an integer that is no number");
  item.integer = *value;
  if (type == '$') return begin_bulk(item, *value, place);
  if (type == '*') return begin_array(item, *value);
  item.type = RespType::integer;
  item_done();
  return {};
}

Status RespReplyParser::begin_bulk(RespReply& item, int64_t bytes, std::span<uint8_t> place) {
  if (bytes < -1 || bytes > static_cast<int64_t>(kMaxRespBulkBytes)) return fail("a bulk's length");
  if (bytes == -1) {
    item.integer = 0;
    item_done();
    return {};
  }
  item.type = RespType::bulk;
  bytes_ = static_cast<uint64_t>(bytes);
  got_ = 0;
  now_ = &item;
  if (open_.empty() && !place.empty()) {
    item.placed = bytes_ <= place.size();
    state_ = item.placed ? State::placed : State::dropped;
    return {};
  }
  if (bytes_ > kMaxRespReplyBytes - kept_) return fail("too many bytes");
  kept_ += bytes_;
  item.text.reserve(bytes_);
  state_ = State::kept;
  return {};
}

Status RespReplyParser::begin_array(RespReply& item, int64_t count) {
  if (count < -1 || count > static_cast<int64_t>(kMaxRespReplyItems)) {
    return fail("an array's length");
  }
  item.integer = 0;
  if (count >= 0) item.type = RespType::array;
  if (count <= 0) {
    item_done();
    return {};
  }
  if (open_.size() == kMaxRespReplyDepth) return fail("too deep");
  open_.push_back({&item, static_cast<uint32_t>(count)});
  return {};
}

// Takes what was read ahead of the bulk under way.
void RespReplyParser::take_bytes(std::span<uint8_t> place) {
  const size_t here = std::min<uint64_t>(bytes_ - got_, end_ - begin_);
  const uint8_t* from = stage_.data() + begin_;
  if (state_ == State::kept) {
    now_->text.append(reinterpret_cast<const char*>(from), here);
  } else if (state_ == State::placed && here > 0) {
    KV_CHECK(place.size() >= bytes_);  // the same place as when it began
    std::memcpy(place.data() + got_, from, here);
  }
  begin_ += here;
  got_ += here;
}

Status RespReplyParser::take_bulk_end() {
  if (stage_[begin_] != '\r' || stage_[begin_ + 1] != '\n') return fail("a bulk without its end");
  begin_ += 2;
  item_done();
  return {};
}

// An item is whole: so is every array whose last one it was.
void RespReplyParser::item_done() {
  now_ = nullptr;
  state_ = State::line;
  while (!open_.empty() && --open_.back().left == 0) open_.pop_back();
  if (open_.empty()) state_ = State::ready;
}

}  // namespace kv
